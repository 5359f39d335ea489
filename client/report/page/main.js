// The page as a whole: filters, headline, sections.
const form = document.getElementById("filters");

function fillFilters() {
  const of = (list) => [...new Set(list)].sort();
  const lists = {
    gpu: of(D.environments.map((e) => e.gpu_model)), dtype: of(D.problems.map((p) => p.data_type)),
    layout: of(D.problems.map((p) => p.layout)), op: of(D.problems.map((p) => p.operation)),
  };
  for (const [name, values] of Object.entries(lists)) {
    form.elements[name].innerHTML = '<option value="">all</option>' + values.map((v) => `<option value="${esc(v)}">${esc(v)}</option>`).join("");
  }
}

function tile(id, name, value, words, kind = "") {
  return `<div class="tile" data-tile="${id}"><div class="name">${name}</div><div class="value ${kind}">${value}</div><div class="words">${words}</div></div>`;
}

function drawHeadline(s) {
  const h = s.headline, shared = s.timed.some((p) => p.timed_nodes > 1), compared = s.gpus.some((g) => g.compared >= 8);
  const gain = none(h.gain) ? "stock and winner were not both timed" : `geometric mean of ${plural(h.compared_pairs, "problem")}; stock is best in ${percent(h.stock_is_best)}`;
  document.getElementById("headline").innerHTML = [
    tile("coverage", "Coverage", percent(h.coverage), `${count(h.timed_pairs)} of ${count(h.pairs + h.wanted_pairs)} problems timed${h.wanted_pairs ? `, ${count(h.wanted_pairs)} unknown` : ""}`),
    tile("hit_ratio", "Hit ratio", percent(h.hit_ratio), none(h.hit_ratio) ? "no look-ups are known; bundles do not say" : "of look-ups since the daemons started" + (filtered() ? ", all of them" : "")),
    tile("gain", "Faster than stock", times(h.gain), gain, !none(h.gain) && h.gain > 1.005 ? "good" : ""),
    tile("search_seconds", "Search time", seconds(h.search_seconds), "what the tunings took, on all nodes together"),
    tile("stale", "Stale", percent(h.stale), `older than ${seconds(D.options.stale_after_seconds)}, or of a cuDNN that its GPU has left`),
    tile("disagreements", "Disagreements", shared ? count(h.disagreements) : "-", shared ? "problems on which nodes differ beyond noise" : "no two nodes of a model timed a problem", h.disagreements ? "bad" : ""),
    tile("regressions", "Regressions", s.upgrades.length ? count(h.regressions) : "-", s.upgrades.length ? "problems that an upgrade made slower" : "nothing was timed before and after an upgrade", h.regressions ? "bad" : ""),
    tile("slow_gpus", "Slow GPUs", compared ? count(h.slow_gpus) : "-", compared ? "against others of their model" : "too little in common to compare GPUs", h.slow_gpus ? "bad" : ""),
  ].join("");
}

function drawNotices(s) {
  const notices = [];
  if (CHECK_ONLY) return (document.getElementById("notices").innerHTML = "");
  if (ROWS.length === 0) notices.push("There is nothing to report yet: no tuning was found.");
  else if (s.rows.length === 0) notices.push("The filters leave nothing.");
  else if (s.timed.length === 0) notices.push("<b>Nothing was timed.</b> What is shown as winners are choices of cuDNN's heuristics or of programs, not results of measurements; there are no times to compare.");
  else if (s.timed.length < s.pairs.length) notices.push(`${plural(s.pairs.length - s.timed.length, "problem")} of ${count(s.pairs.length)} were not timed; times and gains are of the others.`);
  const simulated = new Set(s.rows.map((r) => D.environments[r.environment]).filter((e) => e.simulated).map((e) => e.gpu_model));
  if (simulated.size) notices.unshift(`<b>Simulated.</b> ${[...simulated].map(esc).join(", ")}: a GPU made of software. Its times and gains say nothing about a card.`);
  document.getElementById("notices").innerHTML = notices.map((n) => `<p class="notice">${n}</p>`).join("");
}

function draw() {
  const s = select();
  for (const name of FILTERS) if (form.elements[name].value !== state[name]) form.elements[name].value = state[name];
  document.documentElement.dataset.theme = state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const h = s.headline;
  document.getElementById("subtitle").textContent = CHECK_ONLY ? `What an upgrade of cuDNN changes, as of ${D.generated.replace("T", " ").replace("Z", " UTC")}` : `${plural(h.rows, "tuning")} of ${plural(h.problems, "problem")} from ${plural(h.nodes, "node")} in ${plural(h.environments, "environment")}` + (filtered() ? ", filtered" : "") + `, as of ${D.generated.replace("T", " ").replace("Z", " UTC")}`;
  drawNotices(s);
  if (!CHECK_ONLY) drawHeadline(s);
  const sections = SECTIONS.filter(([id]) => (id === "check" ? CHECKS.length > 0 : ROWS.length > 0 || D.wanted.length > 0));
  document.getElementById("contents").innerHTML = sections.map(([id, title]) => `<a href="#" data-to="${id}">${title}</a>`).join("");
  document.getElementById("sections").innerHTML = sections.map(([id, title, about, make]) => `<section class="card${id === "rows" ? " long" : ""}" id="${id}"><h2>${title}</h2><p class="about">${about}</p>${make(s)}</section>`).join("");
  document.documentElement.dataset.drawn = JSON.stringify(h);
}

function change(values) {
  Object.assign(state, values);
  writeState();
  draw();
}

form.addEventListener("input", (e) => { if (FILTERS.includes(e.target.name)) change({ [e.target.name]: e.target.value, page: "", upgrade: "", roof: "" }); });
form.addEventListener("submit", (e) => e.preventDefault());
document.getElementById("reset").addEventListener("click", () => change(Object.fromEntries([...FILTERS, "page", "upgrade", "roof"].map((k) => [k, ""]))));
document.getElementById("theme").addEventListener("click", () => change({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }));
document.getElementById("copy").addEventListener("click", async (e) => {
  try { await navigator.clipboard.writeText(location.href); e.target.textContent = "Copied"; } catch { prompt("The link", location.href); }
  setTimeout(() => { e.target.textContent = "Copy link"; }, 1500);
});
document.getElementById("sections").addEventListener("change", (e) => { if (e.target.name) change({ [e.target.name]: e.target.value }); });
document.getElementById("sections").addEventListener("click", (e) => { if (e.target.dataset.page) { change({ page: e.target.dataset.page }); document.getElementById("rows").scrollIntoView(); } });
document.getElementById("contents").addEventListener("click", (e) => { if (e.target.dataset.to) { e.preventDefault(); document.getElementById(e.target.dataset.to).scrollIntoView(); } });
addEventListener("hashchange", () => { readState(); draw(); });
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });

document.getElementById("footer").innerHTML = (CHECK_ONLY ? "Made by <code>convtune upgrade-check</code>. Nothing was timed" : "Made by <code>convtune report</code>. Times are medians over nodes, each divided by its GPU's speed") + "; the page holds all of its data and loads nothing.";
fillFilters();
readState();
draw();
