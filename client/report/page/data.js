"use strict";
// The document, and the part of it that the filters leave.
const errors = [];
addEventListener("error", (e) => { errors.push(String(e.message)); document.documentElement.dataset.errors = errors.join("; "); });

const D = JSON.parse(document.getElementById("data").textContent);
const EVIDENCE = { 10: "heuristic", 20: "observed", 30: "incomplete", 40: "measured" };

// {columns, values} to objects.
const unpack = (t) => t.values.map((v) => Object.fromEntries(t.columns.map((c, i) => [c, v[i]])));
const PAIRS = unpack(D.pairs);
const ROWS = unpack(D.rows);
const UPGRADES = D.upgrades.map((u) => ({ ...u, points: unpack(u) }));
const problemByText = new Map(D.problems.map((p, i) => [p.text, i]));
const CHECKS = D.upgrade_checks.map((c) => ({ ...c, rows: c.problems.map((r) => ({ ...r, problem: problemByText.get(r.problem) })) }));
// The page of `convtune upgrade-check`, which has that section alone.
const CHECK_ONLY = CHECKS.length > 0 && ROWS.length === 0;

const engineOf = (text) => text.split(",")[0].replace(/^graph:/, "");
const candidate = (i) => (i === null ? "-" : D.candidates[i]);
// A problem without what says nothing: defaults of the text form.
const shortProblem = (text) => text.replace(/,(?:dilation=1x1(?:x1)?|stride=1x1(?:x1)?|groups=1|acc=f32|pad=0x0(?:x0)?)(?=,|$)/g, "")
  .replace(/,(pad|stride|dilation)=(\d+)x\2(?:x\2)?(?=,|$)/g, ",$1=$2");

// Numbers as people read them; "-" for what was not measured.
const none = (v) => v === null || v === undefined || Number.isNaN(v);
const digits = (v, n) => v.toLocaleString("en-US", { maximumSignificantDigits: n });
const count = (v) => v.toLocaleString("en-US");
const percent = (v) => (none(v) ? "-" : (100 * v).toFixed(v > 0 && v < 0.001 ? 2 : 1) + "%");
const times = (v) => (none(v) ? "-" : v.toFixed(v < 10 ? 2 : 1) + "\u00d7");
const micros = (v) => (none(v) || v === 0 ? "-" : Math.abs(v) < 1000 ? digits(v, 3) + " \u00b5s" : digits(v / 1000, 3) + " ms");
const seconds = (v) => (v < 120 ? digits(v, 3) + " s" : v < 7200 ? digits(v / 60, 3) + " min" : v < 172800 ? digits(v / 3600, 3) + " h" : digits(v / 86400, 3) + " d");
const bytes = (v) => (v < 1024 ? `${v} B` : v < 1048576 ? `${digits(v / 1024, 3)} KiB` : `${digits(v / 1048576, 4)} MiB`);
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

const FILTERS = ["gpu", "dtype", "layout", "op", "q"];
let state = {};

function readState() {
  const hash = new URLSearchParams(location.hash.slice(1));
  state = Object.fromEntries([...FILTERS, "theme", "upgrade", "roof", "page"].map((k) => [k, hash.get(k) || ""]));
}
function writeState() {
  const hash = new URLSearchParams(Object.entries(state).filter(([, v]) => v !== "" && v !== "0"));
  history.replaceState(null, "", "#" + hash);
}
const filtered = () => FILTERS.some((k) => state[k] !== "");

// What the filters leave of everything, and the headline of it.
function select() {
  const problem = D.problems.map((p) => (!state.dtype || p.data_type === state.dtype) && (!state.layout || p.layout === state.layout) &&
    (!state.op || p.operation === state.op) && (!state.q || p.text.includes(state.q) || shortProblem(p.text).includes(state.q)));
  const environment = D.environments.map((e) => !state.gpu || e.gpu_model === state.gpu);
  const names = new Set(D.environments.filter((e, i) => environment[i]).map((e) => e.name));
  const both = (x) => environment[x.environment] && problem[x.problem];
  const s = {
    pairs: PAIRS.filter(both),
    rows: ROWS.filter(both),
    disagreements: D.disagreements.filter(both),
    upgrades: UPGRADES.map((u) => ({ ...u, points: u.points.filter(both) })).filter((u) => u.points.length > 0),
    checks: CHECKS.map((c) => ({ ...c, rows: c.rows.filter((r) => problem[r.problem]) })),
    gpus: D.gpus.filter((g) => !state.gpu || g.gpu_model === state.gpu),
    wanted: D.wanted.filter((w) => (!state.gpu || names.has(w.environment)) && problem[problemByText.get(w.problem)]),
  };
  s.timed = s.pairs.filter((p) => p.timed_nodes > 0);
  s.compared = s.timed.filter((p) => p.stock_us && p.winner_us);
  s.headline = headlineOf(s);
  return s;
}

function headlineOf(s) {
  const sum = (list, f) => list.reduce((total, x) => total + f(x), 0);
  const known = new Set(s.pairs.map((p) => D.environments[p.environment].name + "\n" + D.problems[p.problem].text));
  const wantedPairs = s.wanted.filter((w) => !known.has(w.environment + "\n" + w.problem)).length;
  const ratio = (a, b) => (b > 0 ? a / b : null);
  // Of very many rows the document has the newest alone; pairs are of all.
  const pruned = D.rows.left_out > 0;
  const regressions = sum(s.upgrades, (u) => u.points.filter((p) => p.beyond_noise && p.to_us > p.from_us).length);
  return {
    rows: pruned ? sum(s.pairs, (p) => p.nodes) : s.rows.length,
    nodes: pruned ? new Set(s.gpus.map((g) => g.node)).size : new Set(s.rows.map((r) => D.places[r.place].node)).size,
    environments: new Set(s.pairs.map((p) => p.environment)).size,
    problems: new Set(s.pairs.map((p) => p.problem)).size,
    pairs: s.pairs.length,
    timed_pairs: s.timed.length,
    wanted_pairs: wantedPairs,
    coverage: ratio(s.timed.length, s.pairs.length + wantedPairs),
    hit_ratio: D.headline.hit_ratio,
    compared_pairs: s.compared.length,
    gain: s.compared.length ? Math.exp(sum(s.compared, (p) => Math.log(p.stock_us / p.winner_us)) / s.compared.length) : null,
    stock_is_best: ratio(s.compared.filter((p) => p.stock === p.winner).length, s.compared.length),
    search_seconds: pruned ? sum(s.pairs, (p) => p.search_seconds) : sum(s.rows, (r) => r.search_seconds),
    stale: pruned ? ratio(sum(s.pairs, (p) => p.stale_nodes), sum(s.pairs, (p) => p.nodes)) : ratio(s.rows.filter((r) => r.stale).length, s.rows.length),
    disagreements: s.disagreements.length,
    slow_gpus: s.gpus.filter((g) => g.slow).length,
    regressions,
  };
}
