"use strict";
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
  shown.open[i] = open;
  refold();
  show();
}

function reveal(i, message) {
  for (let up = rows()[i][PARENT]; up >= 0; up = rows()[up][PARENT]) shown.open[up] = true;
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

// ----------------------------------------------------------------------------- showing

function say(message) {
  byId("status").textContent = message || "";
}

function show(message) {
  showBar();
  showList();
  showDetails();
  showPicture();
  const count = shown.lines.length;
  say(`${pass().label}: ${count ? place() + 1 : 0} of ${count} shown, ${rows().length} rows in all${message ? ". " + message : ""}`);
}

function showBar() {
  document.querySelectorAll("[data-pass]").forEach((b) => b.setAttribute("aria-pressed", String(Number(b.dataset.pass) === shown.pass)));
  byId("depth").value = shown.depth;
  byId("only").value = shown.only;
}

function showList() {
  const list = byId("list");
  const here = place();
  const start = Math.max(0, here - LISTED / 2);
  list.replaceChildren(
    ...shown.lines.slice(start, start + LISTED).map(([i, indent]) => {
      const mark = shown.parents.has(i) ? (shown.open[i] ? "\u25bc " : "\u25b6 ") : "  ";
      const line = element("div", { role: "option", id: `row${i}`, "aria-selected": String(i === shown.at) });
      line.textContent = "  ".repeat(indent) + mark + rows()[i][TITLE];
      line.addEventListener("click", () => { shown.at = i; show(); });
      line.addEventListener("dblclick", () => fold());
      return line;
    }),
  );
  list.setAttribute("aria-activedescendant", `row${shown.at}`);
  const current = byId(`row${shown.at}`);
  if (current) current.scrollIntoView({ block: "nearest" });
}

function showDetails() {
  const row = rows()[shown.at];
  const pieces = row ? row[LINES].filter((n) => n >= 0).map((n) => data.sources[n]) : [];
  byId("details").innerHTML = row ? `${row[FACTS][0]}<div class="side">${pieces.join("")}</div>${row[FACTS][1]}` : "no operation";
  if (shown.beside >= 0 && shown.beside !== shown.pass) byId("details").prepend(besideTable());
}

function besideTable() {
  const turned = shown.beside < shown.pass;
  const pair = data.pairs[turned ? `${shown.beside},${shown.pass}` : `${shown.pass},${shown.beside}`];
  const lines = pair.lines.map((line) => (turned ? [line[1], line[0]] : line));
  const inside = (i) => { for (; i >= 0; i = rows()[i][PARENT]) if (i === shown.at) return true; return false; };
  const here = Math.max(0, lines.findIndex((line) => line[0] >= 0 && inside(line[0])));
  const start = Math.max(0, here - 9);
  const cell = (number, i, alone, left) => {
    const word = left === turned ? "new" : "vanished"; // what only the later pass has is new
    const made = element("td", alone ? { class: word === "new" ? "new" : "gone" } : {});
    if (i >= 0) made.textContent = (alone ? word + ": " : "") + data.passes[number].rows[i][TITLE];
    return made;
  };
  const body = lines.slice(start, here + 10).map(([a, b]) =>
    element("tr", a >= 0 && inside(a) ? { class: "here" } : {}, cell(shown.pass, a, b < 0, true), cell(shown.beside, b, a < 0, false)));
  const head = element("tr", {}, element("th", {}, pass().label), element("th", {}, data.passes[shown.beside].label));
  const told = turned ? `from ${data.passes[shown.beside].label}: ${pair.summary}` : pair.summary;
  return element("div", {}, element("p", {}, told), element("table", {}, head, ...body));
}

// The picture of the chosen depth that shows the current row, or the row around it.
function pictureOf() {
  const depth = shown.depth === "first" ? -1 : shown.depth === "all" ? Infinity : Number(shown.depth);
  const deepest = Math.max(-1, ...pass().pictures.map((p) => p.depth));
  const some = pass().pictures.filter((p) => p.depth === Math.min(depth, deepest));
  for (let up = shown.at; up >= 0; up = rows()[up][PARENT]) {
    const id = rows()[up][ID];
    const found = some.find((p) => p.spots.includes(id));
    if (found) return [found, id];
  }
  return [some[0], ""];
}

let drawn = null;

function showPicture() {
  const [picture, id] = pictureOf();
  const pane = byId("picture");
  if (!picture || picture.problem) {
    pane.textContent = picture ? picture.problem : "no picture: too many operations are open; choose a smaller depth";
    drawn = null;
    return;
  }
  if (drawn !== picture) {
    pane.innerHTML = picture.svg;
    drawn = picture;
  }
  const svg = pane.querySelector("svg"); // Shrunk to less than half it could not be read.
  const legible = svg.viewBox.baseVal.width * (4 / 3) < 2 * pane.clientWidth;
  pane.className = (shown.fit === null ? legible : shown.fit) ? "fit" : "";
  byId("fit").setAttribute("aria-pressed", String(pane.className === "fit"));
  mark(pane, picture, id);
}

function mark(pane, picture, id) {
  const node = (name) => pane.querySelector(`[id="${name}"]`);
  pane.querySelectorAll(".here, .before, .after").forEach((e) => e.classList.remove("here", "before", "after"));
  if (!id || !node(id)) return;
  node(id).classList.add("here");
  const at = rows().findIndex((row) => row[ID] === id);
  const numbers = new Map(rows().map((row, i) => [row[ID], i]));
  const within = (name) => {
    for (let i = numbers.has(name) ? numbers.get(name) : -1; i >= 0; i = rows()[i][PARENT]) if (i === at) return true;
    return false;
  };
  picture.edges.forEach(([source, target], i) => {
    const [from, to] = [within(source), within(target)];
    if (from === to) return;
    for (const part of [node(`edge${i + 1}`), node(from ? target : source)]) if (part) part.classList.add(from ? "after" : "before");
  });
  node(id).scrollIntoView({ block: "nearest", inline: "nearest" });
}

// ----------------------------------------------------------------------------- saving

const RULES = ".here polygon,.here path,.here ellipse{stroke:#b35900;stroke-width:3.5;fill:#fff3bf}";

function currentSvg() {
  const svg = byId("picture").querySelector("svg");
  if (!svg) return null;
  const copy = svg.cloneNode(true);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = RULES;
  copy.prepend(style);
  return copy;
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function save(kind) {
  const svg = currentSvg();
  if (!svg) return say("there is no picture to save");
  const text = new XMLSerializer().serializeToString(svg);
  if (kind === "svg") return download(new Blob([text], { type: "image/svg+xml" }), `${data.name}.svg`);
  const image = new Image();
  image.onload = () => {
    const canvas = element("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, `${data.name}.png`), "image/png");
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
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
