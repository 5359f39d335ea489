# cmake -DPAGE_DIR=<folder> -DOUTPUT=<page.cc> -P embed.cmake: puts style and
# scripts into page.html, and the page into a text of the program.
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
file(WRITE ${OUTPUT} "namespace convtune::report {
extern const char kReportPage[];
const char kReportPage[] = R\"page(${page})page\";
}  // namespace convtune::report
")
