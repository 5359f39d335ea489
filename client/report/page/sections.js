// Each section: [id, title, what it says, (selection) => HTML]. Where nothing was timed it says so.
const problemCell = (x) => wraps(shortProblem(D.problems[x.problem].text));
const environmentCell = (x) => { const e = D.environments[x.environment]; return esc(e.name) + ' <span class="soft">' + esc(e.cudnn) + "</span>"; };
const nothing = (words) => `<p class="empty">${words}</p>`;
const NOT_TIMED = "Nothing was timed here.";
const SHOWN = 12;

function sharesSection(s) {
  const models = new Map(), totals = new Map();
  const inner = (map, key) => map.get(key) || map.set(key, new Map()).get(key);
  for (const p of s.pairs) {
    if (p.winner === null) continue;
    const e = D.environments[p.environment], q = D.problems[p.problem], engine = engineOf(D.candidates[p.winner]);
    const engines = inner(inner(models, e.gpu_model + (e.profile ? " (a profile, no card)" : e.simulated ? " (simulated, no card)" : "")), [q.data_type, q.layout, q.operation].join(" \u00b7 "));
    engines.set(engine, (engines.get(engine) || 0) + 1);
    totals.set(engine, (totals.get(engine) || 0) + 1);
  }
  if (models.size === 0) return nothing("No problem has a winner.");
  const ordered = [...totals].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([engine]) => engine);
  const place = new Map(ordered.map((engine, i) => [engine, i]));
  const colorOf = (engine) => colors(place.has(engine) ? place.get(engine) : 99);
  const byName = (map) => [...map].sort((a, b) => (a[0] < b[0] ? -1 : 1));
  const groups = byName(models).map(([model, rows]) => [model, byName(rows).map(([label, engines]) => {
    const parts = [...engines].sort((a, b) => place.get(a[0]) - place.get(b[0]));
    const first = parts.filter(([e]) => place.get(e) < 8), rest = parts.filter(([e]) => place.get(e) >= 8).reduce((n, [, v]) => n + v, 0);
    return [label, parts.reduce((n, [, v]) => n + v, 0), rest ? [...first, ["other engines", rest]] : first];
  })]);
  const entries = ordered.slice(0, 8).map((e, i) => [colors(i), e]);
  if (ordered.length > 8) entries.push([colors(99), plural(ordered.length - 8, "other engine")]);
  return legend(entries) + stacks(groups, colorOf, "Share of engines among winners");
}

function stockSection(s) {
  if (s.compared.length === 0) return nothing(NOT_TIMED);
  const edges = [0, 1.005, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, Infinity];
  const labels = ["same", "<1.02", "<1.05", "<1.1", "<1.2", "<1.3", "<1.5", "<2", "<3", "<5", "5+"];
  const bars = labels.map((label, i) => [label, 0, i === 0 ? "var(--other)" : "var(--c0)"]);
  for (const p of s.compared) { const g = p.stock_us / p.winner_us; bars[Math.max(0, edges.findIndex((e) => g < e) - 1)][1]++; }
  const best = s.compared.filter((p) => p.stock_us > p.winner_us).sort((a, b) => b.stock_us - b.winner_us - (a.stock_us - a.winner_us));
  return histogram(bars, "stock choice's time over the measured winner's", "How much slower the stock choice is") +
    (best.length === 0 ? nothing("The stock choice is the best everywhere.") : table([
      ["Problem", "p", problemCell], ["Gain", "n", (p) => `<b class="good">${times(p.stock_us / p.winner_us)}</b>`],
      ["Stock", "n", (p) => micros(p.stock_us)], ["Winner", "n", (p) => micros(p.winner_us)], ["Environment", "", environmentCell],
      ["Stock choice", "c", (p) => wraps(candidate(p.stock))], ["Winner", "c", (p) => wraps(candidate(p.winner))],
    ], best.slice(0, SHOWN)) + moreThan(best, SHOWN));
}

function disagreementSection(s) {
  if (s.timed.every((p) => p.timed_nodes < 2)) return nothing("No problem was timed by two nodes of one model.");
  if (s.disagreements.length === 0) return nothing("Nodes of one model agree, or differ within noise.");
  const list = s.disagreements.flatMap((d) => d.others.map((o) => ({ ...d, other: o })));
  return table([
    ["Problem", "p", problemCell],
    ["Nodes", "n", (d) => `<span title="${esc(d.other.places.slice(0, 20).map((i) => D.places[i].node).join(", "))}">${d.other.places.length} of ${d.timed_nodes}</span>`],
    ["Worst", "n", (d) => `<b class="bad">${times(d.other.cost_ratio)}</b>`],
    ["Cost there", "n", (d) => micros(d.other.cost_us / d.other.places.length)], ["Environment", "", environmentCell],
    ["Common winner", "c", (d) => wraps(candidate(d.winner))], ["Found better", "c", (d) => wraps(candidate(d.other.winner))],
  ], list.slice(0, SHOWN)) + moreThan(list, SHOWN);
}

const upgradeName = (u) => `${u.kind === "cudnn" ? "cuDNN" : "driver"} ${u.from} \u2192 ${u.to}, ${u.subject.split(",")[0]}`;
function upgradeSection(s) {
  if (s.upgrades.length === 0) return nothing("No problem was timed before and after a change of cuDNN or the driver.");
  const chosen = s.upgrades[Math.min(s.upgrades.length - 1, Number(state.upgrade) || 0)];
  const options = s.upgrades.map((u, i) => `<option value="${i}"${u === chosen ? " selected" : ""}>${esc(upgradeName(u))}</option>`).join("");
  const slower = chosen.points.filter((p) => p.beyond_noise && p.to_us > p.from_us), faster = chosen.points.filter((p) => p.beyond_noise && p.to_us < p.from_us);
  const rest = chosen.points.filter((p) => !p.beyond_noise), kept = rest.filter((p, i) => i % Math.ceil(rest.length / 1500 || 1) === 0);
  const dot = (color, r) => (p) => [p.from_us, p.to_us, color, `${shortProblem(D.problems[p.problem].text)}: ${micros(p.from_us)} \u2192 ${micros(p.to_us)}`, r];
  const points = [...kept.map(dot("var(--other)", 2.2)), ...faster.map(dot("var(--good)", 3.2)), ...slower.map(dot("var(--bad)", 3.6))];
  const [lo, hi] = range(points.flatMap((p) => [p[0], p[1]]));
  const mean = Math.exp(chosen.points.reduce((n, p) => n + Math.log(p.to_us / p.from_us), 0) / chosen.points.length);
  return `<div class="pick"><select name="upgrade" aria-label="Upgrade">${options}</select><span>${plural(chosen.points.length, "problem")}: <b class="bad">${count(slower.length)} slower</b>, <b class="good">${count(faster.length)} faster</b>, geometric mean ${times(mean)} of the time</span></div>` +
    scatter({ points, same: true, xName: `${chosen.from}, \u00b5s`, yName: `${chosen.to}, \u00b5s`, lines: [[[[lo, lo], [hi, hi]], "var(--soft)", "4 4"]], words: "Time before and after" }) +
    legend([["var(--bad)", "slower beyond noise"], ["var(--good)", "faster beyond noise"], ["var(--other)", kept.length < rest.length ? `within noise (${count(kept.length)} of ${count(rest.length)} drawn)` : "within noise"]]) +
    (slower.length === 0 ? nothing("Nothing became slower beyond noise.") : table([
      ["Problem", "p", problemCell], ["Lost", "n", (p) => `<b class="bad">${micros(p.to_us - p.from_us)}</b>`], ["Ratio", "n", (p) => times(p.to_us / p.from_us)],
      ["Before", "n", (p) => micros(p.from_us)], ["After", "n", (p) => micros(p.to_us)],
      ["Winner before", "c", (p) => wraps(candidate(p.from_winner))], ["Winner after", "c", (p) => wraps(candidate(p.to_winner))],
    ], slower.slice(0, SHOWN)) + moreThan(slower, SHOWN));
}

const CHANGES = ["same", "knobs", "engine", "gained", "lost", "none", "unknown"];
const CHANGE_COLORS = ["var(--other)", "var(--c0)", "var(--c1)", "var(--good)", "var(--bad)", "var(--soft)", "var(--warn)"];
const checkName = (c) => `${c.profile}, cuDNN ${c.from} \u2192 ${c.to}`;
const grows = (r) => r.from && r.to && r.toWorkspaceBytes > r.fromWorkspaceBytes;
const notesOf = (r) => [...r.notesAdded.map((n) => "+" + n), ...r.notesRemoved.map((n) => "-" + n)].join(" ");
function checkSection(s) {
  const rows = s.checks.flatMap((c) => c.rows.map((r) => ({ ...r, check: c })));
  if (rows.length === 0) return nothing("No problem is left.");
  const groups = [["First choices", s.checks.map((c) => [c.profile, c.rows.length, CHANGES.map((k) => [k, c.rows.filter((r) => r.change === k).length]).filter(([, n]) => n > 0)])]];
  const used = CHANGES.filter((k) => rows.some((r) => r.change === k));
  const colorOf = (k) => CHANGE_COLORS[CHANGES.indexOf(k)];
  const words = { same: "the same", knobs: "the same engine with other knobs", engine: "another engine", gained: "newly has one", lost: "has none any more", none: "neither has one", unknown: "not known" };
  const changed = rows.filter((r) => !["same", "none"].includes(r.change) || r.fromWorkspaceBytes !== r.toWorkspaceBytes || notesOf(r) || r.winnerLost || r.lastResort || r.erratum);
  const weight = (r) => (r.winnerLost || r.change === "lost" ? 2e15 : r.lastResort || r.erratum ? 1e15 : 0) + (grows(r) ? r.toWorkspaceBytes - r.fromWorkspaceBytes : 0) + r.count / 1e6;
  const shown = CHECK_ONLY ? changed.length : SHOWN;
  changed.sort((a, b) => weight(b) - weight(a));
  return `<p class="about">${s.checks.map((c) => `${esc(checkName(c))}: ${plural(c.rows.length, "problem")}, ${count(c.rows.filter((r) => !["same", "none", "unknown"].includes(r.change)).length)} with another first choice, ${count(c.rows.filter(grows).length)} with more workspace, ${count(c.rows.filter((r) => r.winnerLost || r.change === "lost").length)} lost`).join("<br>")}</p>` +
    stacks(groups, colorOf, "First choices that an upgrade changes") + legend(used.map((k) => [colorOf(k), words[k]])) +
    (changed.length === 0 ? nothing("Nothing changes.") : table([
      ["Problem", "p", problemCell], ["Runs", "n", (r) => count(r.count)], ["Profile", "", (r) => esc(r.check.profile)],
      ["Change", "", (r) => (r.winnerLost || r.change === "lost" ? `<b class="bad">${r.winnerLost ? "winner lost" : "lost"}</b>` : esc(r.change) + (r.lastResort ? ', <b class="bad">last resort</b>' : "") + (r.erratum ? ', <b class="bad">known to be wrong</b>' : ""))],
      ["Workspace", "n", (r) => (r.fromWorkspaceBytes === r.toWorkspaceBytes ? bytes(r.toWorkspaceBytes) : `${bytes(r.fromWorkspaceBytes)} \u2192 <b class="${grows(r) ? "bad" : ""}">${bytes(r.toWorkspaceBytes)}</b>`)],
      ["Notes", "", (r) => esc(notesOf(r) || "-")], ["Before", "c", (r) => wraps(r.from || "-")], ["After", "c", (r) => wraps(r.to || "-")],
    ], changed.slice(0, shown)) + moreThan(changed, shown)) + nothing("Nothing was timed: whether another choice is slower takes a GPU with the new version.");
}

function gpuSection(s) {
  const compared = s.gpus.filter((g) => g.compared >= 8);
  if (compared.length === 0) return nothing("A GPU's speed takes at least 8 problems that at least 3 GPUs of its model have timed.");
  const slow = compared.filter((g) => g.slow), low = 0.88, step = 0.01, bins = 36;
  const bars = Array.from({ length: bins }, (_, i) => [(low + i * step).toFixed(2), 0, low + i * step >= D.options.slow_ratio - 1e-9 ? "var(--bad)" : "var(--c2)"]);
  for (const g of compared) bars[Math.max(0, Math.min(bins - 1, Math.floor((g.ratio - low) / step + 1e-6)))][1]++;
  return histogram(bars, "median time over the model's: above 1 is slower", "How fast GPUs are against their model") +
    (slow.length === 0 ? nothing(`None of ${plural(compared.length, "GPU")} is slower than its model by ${percent(D.options.slow_ratio - 1)}.`) : table([
      ["Node", "", (g) => esc(g.node)], ["Ratio", "n", (g) => `<b class="bad">${times(g.ratio)}</b>`],
      ["SM clock", "n", (g) => (g.clock_mhz ? digits(g.clock_mhz, 4) + " MHz" : "-")],
      ["Model's", "n", (g) => (g.model_clock_mhz ? digits(g.model_clock_mhz, 4) + " MHz" : "-")],
      ["Throttled", "n", (g) => percent(g.throttled)], ["Problems", "n", (g) => count(g.compared)],
      ["Model", "", (g) => esc(g.gpu_model)], ["GPU", "c", (g) => esc(g.gpu_uuid)],
    ], slow.slice(0, SHOWN)) + moreThan(slow, SHOWN));
}

function rooflineSection(s) {
  const roofs = D.roofs.filter((r) => (!state.gpu || r.gpu_model === state.gpu) && (!state.dtype || r.data_type === state.dtype));
  if (s.timed.length === 0 || roofs.length === 0) return nothing(NOT_TIMED);
  const chosen = roofs[Math.min(roofs.length - 1, Number(state.roof) || 0)];
  const options = roofs.map((r, i) => `<option value="${i}"${r === chosen ? " selected" : ""}>${esc(r.gpu_model)} \u00b7 ${esc(r.data_type)}</option>`).join("");
  const mine = s.timed.filter((p) => p.winner_us && D.environments[p.environment].gpu_model === chosen.gpu_model && D.problems[p.problem].data_type === chosen.data_type);
  const kept = mine.filter((p, i) => i % Math.ceil(mine.length / 2000 || 1) === 0);
  const points = kept.map((p) => {
    const q = D.problems[p.problem], tflops = q.flops / p.winner_us / 1e6;
    return [q.flops / q.tensor_bytes, tflops, colors(["fwd", "bwd_data", "bwd_filter"].indexOf(q.operation)), `${shortProblem(q.text)}: ${digits(tflops, 3)} TFLOP/s, ${micros(p.winner_us)}`];
  });
  if (points.length === 0) return `<div class="pick"><select name="roof" aria-label="GPU and type">${options}</select></div>` + nothing(NOT_TIMED);
  const [lo, hi] = range(points.map((p) => p[0])), knee = chosen.tflops * 1e3 / chosen.gbytes_per_second;
  const at = (x) => Math.min(chosen.tflops, x * chosen.gbytes_per_second / 1e3);
  const xs = [lo, Math.min(hi, Math.max(lo, knee)), hi];
  return `<div class="pick"><select name="roof" aria-label="GPU and type">${options}</select><span>best attained: ${digits(chosen.tflops, 3)} TFLOP/s, ${digits(chosen.gbytes_per_second, 3)} GB/s</span></div>` +
    scatter({ points, xName: "FLOP per byte of tensors", yName: "TFLOP/s", lines: [[xs.map((x) => [x, at(x)]), "var(--soft)", "5 4"]], words: "Roofline" }) +
    legend([[colors(0), "fwd"], [colors(1), "bwd_data"], [colors(2), "bwd_filter"], ["var(--soft)", kept.length < mine.length ? `roof; ${count(kept.length)} of ${count(mine.length)} problems drawn` : "roof: the best that was attained"]]);
}

function wantedSection(s) {
  if (s.wanted.length === 0) return nothing("Nothing is known to have been asked for in vain; bundles do not say.");
  return table([
    ["Problem", "p", (w) => wraps(shortProblem(w.problem))], ["Misses", "n", (w) => count(w.misses)], ["Nodes", "n", (w) => count(w.nodes)],
    ["Environment", "", (w) => esc(w.environment)], ["Why it is still missing", "", (w) => esc(w.last_error || "not tried")],
  ], s.wanted.slice(0, SHOWN)) + moreThan(s.wanted, SHOWN);
}

const PAGE = 50;
function rowsSection(s) {
  if (s.rows.length === 0) return nothing("There are no tunings.");
  const pages = Math.ceil(s.rows.length / PAGE), page = Math.min(pages - 1, Number(state.page) || 0);
  const place = (r) => D.places[r.place];
  const newest = D.rows.left_out > 0 ? nothing(`The newest ${count(ROWS.length)} of ${count(ROWS.length + D.rows.left_out)}; a narrower report has the others.`) : "";
  return newest + table([
    ["Problem", "p", problemCell], ["Time", "n", (r) => micros(r.winner_us)], ["Stock", "n", (r) => micros(r.stock_us)],
    ["Environment", "", environmentCell], ["Node", "", (r) => esc(place(r).node || "-")], ["Driver", "", (r) => esc(place(r).driver || "-")], ["Evidence", "", (r) => EVIDENCE[r.evidence] || "none ran"],
    ["Winner", "c", (r) => wraps(candidate(r.winner))],
    ["Tuned", "n", (r) => new Date(r.tune_time * 1000).toISOString().slice(0, 10) + (r.stale ? ' <span class="soft">stale</span>' : "")],
  ], s.rows.slice(page * PAGE, (page + 1) * PAGE)) +
    (pages > 1 ? `<div class="pager"><button type="button" data-page="${page - 1}"${page === 0 ? " disabled" : ""}>Back</button><span>${count(page * PAGE + 1)} to ${count(Math.min(s.rows.length, (page + 1) * PAGE))} of ${count(s.rows.length)}</span><button type="button" data-page="${page + 1}"${page === pages - 1 ? " disabled" : ""}>Next</button></div>` : "");
}

const SECTIONS = [
  ["shares", "Which algorithms win", "By engine, for each GPU model, type, layout and operation; a problem counts once in each environment.", sharesSection],
  ["stock", "Stock choice against measured", "What cuDNN's heuristic would have run, against the winner. Bars count problems.", stockSection],
  ["disagreement", "Nodes that disagree", "Problems for which a node has measured another winner, beyond the noise of its own samples, and what the common winner costs it.", disagreementSection],
  ["upgrades", "Upgrades", "The same problems before and after. Below the line is faster.", upgradeSection],
  ["check", "Before an upgrade of cuDNN", "What two versions choose for the same problems, on GPUs that a profile describes. Lost choices come first, then those of last resort, then the largest growth of workspace.", checkSection],
  ["gpus", "Slow GPUs", "Each GPU's time over the median of its model's, as the median of all problems.", gpuSection],
  ["roofline", "Roofline", "How close winners come to the best that any problem of that GPU and type attained; no data sheet is asked.", rooflineSection],
  ["wanted", "Most wanted", "What programs asked for and did not get.", wantedSection],
  ["rows", "Where it comes from", "Every tuning behind this page.", rowsSection],
];
