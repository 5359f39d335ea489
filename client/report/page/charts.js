// Small pieces of HTML and SVG. Text goes through `esc`.
const esc = (t) => String(t).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
// Text that may be broken behind its commas.
const wraps = (t) => esc(t).replace(/,/g, ",<wbr>");
const colors = (i) => (i < 8 ? `var(--c${i})` : "var(--other)");

// columns: [title, class, cell of a row as HTML].
function table(columns, rows) {
  const head = columns.map(([title, kind]) => `<th class="${kind}">${esc(title)}</th>`).join("");
  const body = rows.map((r) => "<tr>" + columns.map(([, kind, cell]) => `<td class="${kind}">${cell(r)}</td>`).join("") + "</tr>").join("");
  return `<div class="scroll"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}
const moreThan = (list, shown) => (list.length > shown ? `<p class="empty">The first ${shown} of ${count(list.length)}; the others are in <code>--json</code>.</p>` : "");

function legend(entries) {
  return '<div class="legend">' + entries.map(([color, words]) => `<span><i style="background:${color}"></i>${esc(words)}</span>`).join("") + "</div>";
}

const widthOf = () => Math.max(260, Math.min(1140, document.querySelector("main").clientWidth - 40) - 38);
const svg = (width, height, inner, words) => `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${esc(words)}">${inner}</svg>`;

// 1, 2, 5 times powers of ten within [low, high].
function logTicks(low, high, most) {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) for (const m of [1, 2, 5]) all.push(m * 10 ** e);
  const inside = all.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  const decades = inside.filter((v) => Number.isInteger(Math.round(Math.log10(v) * 1e6) / 1e6));
  return inside.length <= most ? inside : decades.length >= 2 ? decades.filter((v, i) => i % Math.ceil(decades.length / most) === 0) : inside.filter((v, i) => i % Math.ceil(inside.length / most) === 0);
}

// Points of [x, y, class color, title] on logarithmic axes; `lines` are paths of data points.
function scatter({ points, xName, yName, lines = [], same = false, words, xText = (v) => digits(v, 2), yText = (v) => digits(v, 2) }) {
  const w = widthOf(), h = Math.min(440, Math.max(280, w * 0.5)), left = 58, right = 12, top = 10, bottom = 42;
  let xs = points.map((p) => p[0]), ys = points.map((p) => p[1]).concat(lines.flatMap(([path]) => path.map((q) => q[1])));
  if (same) xs = ys = xs.concat(ys);
  const span = (v) => { const lo = Math.min(...range(v)), hi = Math.max(...range(v)); return lo === hi ? [lo / 2, hi * 2] : [lo / 1.15, hi * 1.15]; };
  const [x0, x1] = span(xs), [y0, y1] = span(ys);
  const X = (v) => left + (w - left - right) * Math.log(v / x0) / Math.log(x1 / x0);
  const Y = (v) => h - bottom - (h - top - bottom) * Math.log(v / y0) / Math.log(y1 / y0);
  let out = "";
  for (const t of logTicks(x0, x1, Math.floor(w / 90))) out += `<line class="grid" x1="${X(t)}" x2="${X(t)}" y1="${top}" y2="${h - bottom}"/><text x="${X(t)}" y="${h - bottom + 16}" text-anchor="middle">${xText(t)}</text>`;
  for (const t of logTicks(y0, y1, 7)) out += `<line class="grid" x1="${left}" x2="${w - right}" y1="${Y(t)}" y2="${Y(t)}"/><text x="${left - 6}" y="${Y(t) + 4}" text-anchor="end">${yText(t)}</text>`;
  const clampX = (v) => Math.min(x1, Math.max(x0, v)), clampY = (v) => Math.min(y1, Math.max(y0, v));
  for (const [path, color, dash] of lines) out += `<polyline fill="none" stroke="${color}" stroke-width="1.5" stroke-dasharray="${dash}" points="${path.map(([x, y]) => X(clampX(x)).toFixed(1) + "," + Y(clampY(y)).toFixed(1)).join(" ")}"/>`;
  for (const [x, y, color, title, r] of points) out += `<circle cx="${X(x).toFixed(1)}" cy="${Y(y).toFixed(1)}" r="${r || 2.6}" fill="${color}" fill-opacity=".65"><title>${esc(title)}</title></circle>`;
  out += `<text x="${(left + w - right) / 2}" y="${h - 6}" text-anchor="middle">${esc(xName)}</text><text transform="translate(13 ${(top + h - bottom) / 2}) rotate(-90)" text-anchor="middle">${esc(yName)}</text>`;
  return svg(w, h, out, words);
}
// Least and most, since spreading 100,000 arguments fails.
const range = (v) => v.reduce(([lo, hi], x) => [Math.min(lo, x), Math.max(hi, x)], [Infinity, -Infinity]);

// Bars of [label, number, color].
function histogram(bars, name, words) {
  const w = widthOf(), h = 190, left = 44, bottom = 38, top = 8;
  const most = Math.max(1, ...bars.map((b) => b[1])), step = (w - left) / bars.length, Y = (v) => h - bottom - (h - bottom - top) * v / most;
  const ticks = [0, most / 2, most].map(Math.round).filter((v, i, all) => all.indexOf(v) === i);
  let out = ticks.map((t) => `<line class="grid" x1="${left}" x2="${w}" y1="${Y(t)}" y2="${Y(t)}"/><text x="${left - 6}" y="${Y(t) + 4}" text-anchor="end">${count(t)}</text>`).join("");
  const every = Math.ceil(52 / step);
  bars.forEach(([label, value, color], i) => {
    out += `<rect x="${(left + i * step + 1).toFixed(1)}" y="${Y(value).toFixed(1)}" width="${Math.max(1, step - 2).toFixed(1)}" height="${(h - bottom - Y(value)).toFixed(1)}" rx="2" fill="${color}"><title>${esc(label)}: ${count(value)}</title></rect>`;
    if (i % every === 0) out += `<text x="${left + (i + 0.5) * step}" y="${h - bottom + 15}" text-anchor="middle">${esc(label)}</text>`;
  });
  out += `<text x="${(left + w) / 2}" y="${h - 4}" text-anchor="middle">${esc(name)}</text>`;
  return svg(w, h, out, words);
}

// Below each heading a stacked bar for each of [label, total, [[part, number]]]; colorOf(part).
function stacks(groups, colorOf, words) {
  const w = widthOf(), narrow = w < 560, left = narrow ? 0 : 170, each = narrow ? 40 : 25, bar = w - left - 52;
  let y = 0, out = "";
  for (const [heading, rows] of groups) {
    out += `<text class="heading" x="0" y="${y + 16}">${esc(heading)}</text>`;
    y += 24;
    for (const [label, total, parts] of rows) {
      const by = narrow ? y + 17 : y + 1;
      let x = left;
      out += `<text class="label" x="${left - (narrow ? 0 : 10)}" y="${narrow ? y + 12 : by + 14}" text-anchor="${narrow ? "start" : "end"}">${esc(label)}</text><text x="${w}" y="${by + 14}" text-anchor="end">${count(total)}</text>`;
      for (const [part, value] of parts) {
        const width = bar * value / total;
        out += `<rect x="${x.toFixed(1)}" y="${by}" width="${Math.max(0.5, width - 1).toFixed(1)}" height="18" fill="${colorOf(part)}"><title>${esc(part)}: ${count(value)} (${percent(value / total)})</title></rect>`;
        x += width;
      }
      y += each;
    }
    y += 8;
  }
  return svg(w, y, out, words);
}
