// What is open, steps, search and controls; page_panes.js shows it.
// A row of the data: [id, parent, title, depth, shut, open, [heading, facts], [user's line, class's line],
// [operation, classes, module, names], values]. `shut` rows open by hand only.
const data = JSON.parse(document.getElementById("data").textContent);
const [ID, PARENT, TITLE, DEPTH, SHUT, OPEN, FACTS, LINES, WORDS, VALUES] = Array(10).keys();
const PLACES = { op: 0, class: 1, module: 2, name: 3 };
const LISTED = 300;
const shown = { pass: data.first, at: 0, depth: "first", query: "", only: "", beside: -1, open: [], lines: [], fit: null };
const kept = {}; // What was open in each pass, and where it stood.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const pass = () => data.passes[shown.pass];
const rows = () => pass().rows;
const byId = (id) => document.getElementById(id);

// ----------------------------------------------------------------------------- what is open

function choose(number) {
  if (data.passes[number].problem) return say(data.passes[number].problem);
  const old = rows()[shown.at];
  kept[shown.pass] = { open: shown.open, at: shown.at, depth: shown.depth };
  const names = old ? old[WORDS][3] : "";
  shown.pass = number;
  Object.assign(shown, kept[number] || { open: rows().map((row) => row[OPEN] === 1), at: pass().at, depth: "first" });
  shown.only = "";
  const same = rows().findIndex((row) => names && row[WORDS][3] === names);
  refold();
  if (same >= 0) shown.at = nearest(same);
  show(pass().note);
}

function setDepth(depth) {
  shown.depth = depth;
  const level = depth === "all" ? Infinity : Number(depth);
  shown.open = rows().map((row) => (depth === "first" ? row[OPEN] === 1 : !row[SHUT] && row[DEPTH] < level));
  refold();
  show();
}

function isAbout(row) {
  const [words, only] = [row[WORDS], shown.only];
  if (words[2] === only || words[2].startsWith(only + ".")) return true;
  return row[DEPTH] > 0 && row[VALUES].includes(only);
}

// The rows that are shown: those whose enclosing rows are all open. Rows come after the row around them.
function refold() {
  const all = rows();
  const state = new Int8Array(all.length); // 1: shown and open, 2: shown or hidden, but about what is asked for
  const indent = new Int32Array(all.length);
  shown.parents = new Set(all.map((row) => row[PARENT]));
  shown.lines = [];
  all.forEach((row, i) => {
    const up = row[PARENT];
    const inside = up < 0 ? !shown.only : state[up] === 1;
    if (inside || (shown.only && (up < 0 || state[up] === 2) && isAbout(row))) {
      indent[i] = inside && up >= 0 ? indent[up] + 1 : 0;
      shown.lines.push([i, indent[i]]);
      state[i] = shown.open[i] ? 1 : 3;
    } else if (shown.only && (up < 0 || state[up] === 2)) state[i] = 2;
    else state[i] = 3;
  });
  shown.at = nearest(shown.at);
}

// A row that is shown: this one, or the one around it.
function nearest(i) {
  const there = new Set(shown.lines.map((line) => line[0]));
  for (let up = i; up >= 0; up = rows()[up][PARENT]) if (there.has(up)) return up;
  const next = shown.lines.find((line) => line[0] >= i) || shown.lines[shown.lines.length - 1];
  return next ? next[0] : -1;
}

const place = () => shown.lines.findIndex((line) => line[0] === shown.at);

function go(to, message) {
  if (shown.lines.length) shown.at = shown.lines[Math.max(0, Math.min(to, shown.lines.length - 1))][0];
  show(message);
}

function fold(open) {
  let i = shown.at;
  if (i < 0) return;
  if (open === undefined) open = !shown.open[i];
  if (!open && !(shown.open[i] && shown.parents.has(i))) i = rows()[i][PARENT];
  if (i < 0 || (open && !shown.parents.has(i))) return say(open ? "nothing is inside" : "nothing is open here");
  if (open) closeBlocks(i, -1);
  shown.open[i] = open;
  refold();
  show();
}

// Repeated blocks stand closed when the row that stands for them is opened, but for one.
function closeBlocks(run, one) {
  const all = rows();
  if (!all[run][SHUT] || all[run][DEPTH] || shown.open[run]) return;
  all.forEach((row, i) => { if (row[PARENT] === run && !row[DEPTH]) shown.open[i] = i === one; });
}

function reveal(i, message) {
  for (let inner = i, up = rows()[i][PARENT]; up >= 0; inner = up, up = rows()[up][PARENT]) {
    closeBlocks(up, inner);
    shown.open[up] = true;
  }
  shown.at = i;
  refold();
  if (shown.at !== i) {
    shown.only = "";
    shown.at = i;
    refold();
  }
  show(message);
}

// ----------------------------------------------------------------------------- search

function matches() {
  const text = shown.query.trim().toLowerCase();
  const colon = text.indexOf(":");
  const where = colon > 0 ? PLACES[text.slice(0, colon)] : undefined;
  const wanted = where === undefined ? text : text.slice(colon + 1).trim();
  if (!text) return [];
  const has = (row) => (where === undefined ? row[WORDS] : [row[WORDS][where]]).some((w) => w.toLowerCase().includes(wanted));
  return rows().flatMap((row, i) => (has(row) ? [i] : []));
}

function find(by) {
  const found = matches();
  if (!found.length) return say(shown.query ? `nothing is found for '${shown.query}'` : "");
  const ahead = found.filter((i) => (by === 0 ? i >= shown.at : (i - shown.at) * by > 0));
  const list = ahead.length ? ahead : found;
  const to = by < 0 ? list[list.length - 1] : list[0];
  reveal(to, `match ${found.indexOf(to) + 1} of ${found.length}`);
}

function only(name) {
  const known = rows().some((row) => row[VALUES].includes(name) || row[WORDS][2] === name || row[WORDS][2].startsWith(name + "."));
  if (name && !known) return say(`no module and no value is called '${name}'`);
  shown.only = name;
  refold();
  show();
}

// ----------------------------------------------------------------------------- controls

let timer = 0;

function play() {
  if (timer) { clearInterval(timer); timer = 0; }
  else timer = setInterval(() => { if (place() + 1 < shown.lines.length) go(place() + 1); else play(); }, 700);
  byId("play").setAttribute("aria-pressed", String(timer !== 0));
}

const ACTIONS = {
  first: () => go(0), back: () => go(place() - 1), step: () => go(place() + 1), last: () => go(shown.lines.length - 1),
  expand: () => fold(true), collapse: () => fold(false), toggle: () => fold(), next: () => find(1), previous: () => find(-1),
};
const KEYS = {
  Home: "first", End: "last", ArrowUp: "back", ArrowDown: "step", k: "back", j: "step",
  ArrowRight: "expand", ArrowLeft: "collapse", Enter: "toggle", n: "next", N: "previous",
};

function pressed(event) {
  const kind = event.target.tagName;
  if (kind === "INPUT" || kind === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (kind === "BUTTON" && (event.key === "Enter" || event.key === " ")) return;
  if (event.key === "/") byId("search").focus();
  else if (event.key === "p") play();
  else if (KEYS[event.key]) ACTIONS[KEYS[event.key]]();
  else return;
  event.preventDefault();
}

function button(text, action, more = {}) {
  return element("button", { type: "button", onclick: action, ...more }, text);
}

function build() {
  const label = (text, control) => element("label", {}, text + " ", control);
  const option = ([value, text]) => element("option", { value }, text);
  const depths = [["first", "as opened"], ["0", "modules"], ...[1, 2, 3, 4, 5].map((n) => [String(n), String(n)]), ["all", "all"]];
  const others = [["-1", "(none)"], ...data.passes.flatMap((p, i) => (p.problem ? [] : [[String(i), p.label]]))];
  const input = (id, about, change) => element("input", { id, placeholder: about, "aria-label": about, onchange: change });
  byId("explorer").append(
    element("div", { class: "bar", role: "toolbar", "aria-label": "passes" },
      ...data.passes.map((p, i) => button(p.label, () => choose(i), { "data-pass": i })),
      label("beside", element("select", { onchange: (e) => { shown.beside = Number(e.target.value); show(); } }, ...others.map(option))),
      label("depth", element("select", { id: "depth", onchange: (e) => setDepth(e.target.value) }, ...depths.map(option))),
      button("Fit picture", (e) => { shown.fit = e.target.getAttribute("aria-pressed") !== "true"; show(); }, { id: "fit" }),
      button("Save svg", () => save("svg")), button("Save png", () => save("png"))),
    element("div", { class: "bar", role: "toolbar", "aria-label": "steps" },
      ...["First", "Back", "Step", "Last"].map((name) => button(name, ACTIONS[name.toLowerCase()])),
      button("Play", play, { id: "play", "aria-pressed": "false" }),
      button("Expand", ACTIONS.expand), button("Collapse", ACTIONS.collapse),
      input("search", "search: op, class, module or name", (e) => { shown.query = e.target.value; find(0); }),
      button("Previous", ACTIONS.previous), button("Next", ACTIONS.next),
      input("only", "only this module or value", (e) => only(e.target.value.trim()))),
    element("div", { id: "status", role: "status" }),
    element("div", { class: "columns" },
      element("div", { id: "list", role: "listbox", tabindex: "0", "aria-label": "operations" }),
      element("div", { id: "picture", tabindex: "0", "aria-label": "picture of the trace" }),
      element("div", { id: "details", tabindex: "0", "aria-label": "details" })),
    element("div", { class: "keys" }, "Keys: up and down (or k, j) step, Home and End go to the ends, left and right fold, Enter opens or closes, "
      + "/ searches, n and N go to the next and previous match, p plays. Search: a word, or op:, class:, module:, name: and a word."),
  );
  document.addEventListener("keydown", pressed);
}

build();
shown.open = rows().map((row) => row[OPEN] === 1);
shown.at = pass().at;
refold();
show(pass().note);
byId("list").focus();
