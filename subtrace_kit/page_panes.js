// The panes of the page; it stands before page.js in one script.
"use strict";
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
