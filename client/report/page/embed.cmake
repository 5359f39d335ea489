# cmake -DPAGE_DIR=<folder> -DOUTPUT=<page.cc> -P embed.cmake: puts style and
# scripts into page.html and cuts it where the data belong. A string literal may
# have 64 KiB at least; pieces are kept shorter.
set(style_parts style.css)
set(script_parts data.js charts.js sections.js main.js)
foreach(kind style script)
  set(${kind} "")
  foreach(part IN LISTS ${kind}_parts)
    file(READ ${PAGE_DIR}/${part} text)
    string(APPEND ${kind} "${text}")
  endforeach()
endforeach()
file(READ ${PAGE_DIR}/page.html page)
string(REPLACE "/*STYLE*/" "${style}" page "${page}")
string(REPLACE "/*SCRIPT*/" "${script}" page "${page}")
string(FIND "${page}" "/*DATA*/" cut)
string(SUBSTRING "${page}" 0 ${cut} head)
math(EXPR after "${cut} + 8")
string(SUBSTRING "${page}" ${after} -1 tail)

# pieces(<out> <text>): adjacent literals.
function(pieces out text)
  set(literals "")
  string(LENGTH "${text}" length)
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND literals "    R\"page(${piece})page\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  set(${out} "${literals}" PARENT_SCOPE)
endfunction()
pieces(head_literals "${head}")
pieces(tail_literals "${tail}")
file(WRITE ${OUTPUT} "#include \"client/report/page.h\"

namespace convtune::report {

std::string_view ReportPageHead() {
  return
${head_literals}      ;
}

std::string_view ReportPageTail() {
  return
${tail_literals}      ;
}

}  // namespace convtune::report
")
