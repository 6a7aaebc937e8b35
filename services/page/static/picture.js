// The chain of a bucket as a timeline, and its space matrix as a picture, in which one chooses snapshots and sees what
// dropping them together frees. Without somebody to ask, it adds up the cells that it has drawn.
import {bytesText, counted, element, moveFocus, quoted, shape, shortened, table} from "./elements.js";

const MOST_ROWS = 100; // of a matrix: smaller squares are hard to hit
const MANY = 200; // snapshots of a timeline: those that cannot be seen are laid out when they can
const MOST_TICKS = 8;
const MOST_SWATCHES = 5;
const MOST_NAMES = 6;
const MOST_TABLE_ROWS = 200;

function* placesOf(runs) {
  for (const [first, last] of runs) for (let place = first; place <= last; place += 1) yield place;
}

// A cell is freed if all groups in all of its runs are chosen: the rule of a what-if.
function isWithin(cell, othersBefore) {
  return cell.runs.every(([first, last]) => othersBefore[first] === othersBefore[last + 1]);
}

function sumWithin(cells, chosen) {
  const othersBefore = [0];
  for (const isChosen of chosen) othersBefore.push(othersBefore[othersBefore.length - 1] + (isChosen ? 0 : 1));
  const sum = {bytes: 0n, replicated: 0n, versions: 0, cells: new Set()};
  for (const cell of cells) {
    if (!isWithin(cell, othersBefore)) continue;
    sum.bytes += cell.bytes;
    sum.replicated += cell.replicated;
    sum.versions += cell.versions;
    sum.cells.add(cell);
  }
  return sum;
}

export class Picture {
  // "freed" is asked for what dropping the named snapshots frees, as text; it may answer later. "changed" is told which
  // ones are chosen, and by what they are protected.
  constructor(picture, read, {freed = null, changed = () => {}} = {}) {
    this.freed = freed;
    this.changed = changed;
    this.groups = read.groups.map((group) => ({...group,
      name: group.names.length === 1 ? group.names[0] : `${group.names[0]} … ${group.names[group.names.length - 1]}`}));
    this.cells = read.cells.map(([runs, bytes, replicated, versions]) =>
      ({runs, bytes: BigInt(bytes), replicated: BigInt(replicated), versions}));
    this.about = (read.leftOut === "0" ? "" : "at least ") + (read.isExact ? "" : "about ");
    this.chosen = this.groups.map((group) => group.isChosen);
    this.lastChanged = 0;
    this.question = 0;
    if (!this.groups.length) { element("p", picture, {textContent: "No snapshot.", className: "quiet"}); return; }
    this.drawAnswer(picture);
    this.drawTimeline(picture);
    this.drawMatrix(picture);
    this.show();
    this.scrollToChosen();
  }

  drawAnswer(parent) {
    this.answer = element("p", parent, {className: "answer"}, {"aria-live": "polite"});
    const label = element("label", parent, {textContent: "names of what is chosen, for a command"});
    this.names = element("textarea", label, {readOnly: true});
    const tools = element("div", parent, {className: "tools"});
    const tool = (textContent, onclick) => element("button", tools, {type: "button", textContent, onclick});
    tool("choose none", () => this.choose(() => false));
    tool("choose all that nothing protects",
      () => this.choose((group) => group.isDroppable && !group.protectedBy.length));
    this.copy = tool("copy names", () => { this.names.select(); document.execCommand("copy"); });
  }

  drawTimeline(parent) {
    const {groups} = this;
    element("h3", parent, {textContent: "Timeline"});
    element("p", parent, {className: "quiet", textContent:
      `From ${groups[0].from || "an unknown time"} to ${groups[groups.length - 1].time || "an unknown time"}. ` +
      "Height: what a snapshot holds that is not live; dark: what it alone holds. " +
      "Click to choose, with shift up to here; arrow keys move, space chooses."});
    const legend = element("ul", parent, {className: "legend"});
    for (const [mark, meaning] of [["✓", "chosen"], ["◆", "protected (striped): a tag, a branch, a consumer or a policy needs it"],
        ["✕", "cannot be dropped (gray)"], ["", "no mark: nothing protects it"]]) {
      const line = element("li", legend);
      if (mark) element("b", line, {textContent: mark});
      line.append(meaning);
    }
    this.timeline = element("div", parent, {className: groups.length > MANY ? "timeline many" : "timeline"},
      {role: "group", "aria-label": "Snapshots, oldest first"});
    const held = groups.map(() => 0n), alone = groups.map(() => 0n);
    const change = [...held, 0n];
    for (const {runs, bytes} of this.cells) {
      for (const [first, last] of runs) { change[first] += bytes; change[last + 1] -= bytes; }
      if (runs.length === 1 && runs[0][0] === runs[0][1]) alone[runs[0][0]] += bytes;
    }
    change.slice(0, -1).reduce((sum, one, place) => held[place] = sum + one, 0n);
    const highest = Number(held.reduce((most, one) => one > most ? one : most, 1n));
    const readout = element("p", parent, {className: "readout"});
    this.buttons = groups.map((group, place) => this.drawButton(group, place, held[place], alone[place], highest, readout));
    this.buttons[0].tabIndex = 0;
    this.timeline.onkeydown = (event) => {
      const from = this.buttons.indexOf(document.activeElement);
      const to = {ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: this.buttons.length - 1}[event.key];
      if (from < 0 || to === undefined) return;
      event.preventDefault();
      moveFocus(this.buttons[from], this.buttons[to]);
    };
  }

  drawButton(group, place, held, alone, highest, readout) {
    const state = !group.isDroppable ? "fixed" : group.protectedBy.length ? "protected" : "";
    const why = !group.isDroppable ? ", cannot be dropped"
      : group.protectedBy.length ? `, protected by ${group.protectedBy.join(", ")}` : "";
    const text = `${group.name}${group.time ? ", " + group.time : ""}${why}: ` +
      `holds ${bytesText(held)} that is not live, ${bytesText(alone)} alone`;
    const button = element("button", this.timeline, {type: "button", className: state, tabIndex: -1},
      {"aria-label": text, "aria-disabled": !group.isDroppable});
    element("span", button, {className: "marks", textContent: {fixed: "✕", protected: "◆"}[state] || ""});
    const bar = element("span", button, {className: "bar"});
    element("i", bar).style.height = `${100 * Number(held - alone) / highest}px`;
    element("i", bar).style.height = `${100 * Number(alone) / highest}px`;
    element("span", button, {className: "name"}, {"data-name": shortened(group.name)});
    button.onfocus = button.onpointerenter = () => { readout.textContent = text; };
    button.onclick = (event) => {
      moveFocus(this.timeline.querySelector("[tabindex='0']"), button);
      if (group.isDroppable) this.toggle(place, event.shiftKey);
    };
    return button;
  }

  drawMatrix(parent) {
    const {groups} = this;
    this.step = Math.ceil(groups.length / MOST_ROWS);
    const rows = Math.ceil(groups.length / this.step);
    element("h3", parent, {textContent: "Matrix"});
    element("p", parent, {className: "quiet", textContent:
      "A square is what one snapshot holds first and another one last; the diagonal is what one snapshot alone holds. " +
      (this.step > 1 ? `A row or column is ${this.step} neighbours. ` : "") +
      "Click on a square to choose all that hold it, with shift to add them; arrow keys move, space chooses."});
    this.squares = this.squaresOf();
    const largest = Math.max(1, ...this.squares.map((one) => Number(one.bytes)));
    const strength = (bytes) => (0.08 + 0.92 * (Math.log(1 + bytes) / Math.log(1 + largest)) ** 3).toFixed(3);
    this.drawLegend(parent, strength, largest);
    const plot = element("div", parent, {className: "plot"});
    element("p", plot, {className: "side", textContent: "last holder ↓"});
    const labels = element("div", plot, {className: "rows"}, {"aria-hidden": true});
    const matrix = shape("svg", plot, {viewBox: `-0.2 -0.2 ${rows + 0.4} ${rows + 0.4}`, class: "matrix", role: "group",
      "aria-label": "Bytes by first and last holder"});
    this.drawTicks(labels, "top", rows);
    this.drawTicks(element("div", plot, {className: "columns"}, {"aria-hidden": true}), "left", rows);
    element("p", plot, {textContent: "first holder →"});
    for (let place = 0; place < rows; place += 1)
      shape("rect", matrix, {x: place, y: place, width: 1, height: 1, class: "empty"});
    for (const square of this.squares) this.drawSquare(matrix, square, strength);
    this.listen(matrix, element("p", parent, {className: "readout"}));
    this.drawTable(parent);
  }

  drawTable(parent) {
    const largest = [...this.squares].sort((one, other) => Number(other.bytes - one.bytes)).slice(0, MOST_TABLE_ROWS);
    const details = element("details", parent);
    element("summary", details, {textContent: largest.length < this.squares.length
      ? `The ${largest.length} largest squares as a table` : "The matrix as a table"});
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      table(details, "Bytes by first and last holder",
        [["first holder", "text"], ["last holder", "text"], ["bytes"], ["versions"]],
        largest.map(({first, last, bytes, versions}) =>
          [this.groups[first].name, this.groups[last].name, bytesText(bytes), versions.toLocaleString("en")]));
    });
  }

  squaresOf() {
    const squares = new Map();
    for (const cell of this.cells) {
      const first = cell.runs[0][0], last = cell.runs[cell.runs.length - 1][1];
      const column = Math.floor(first / this.step), row = Math.floor(last / this.step), key = `${column} ${row}`;
      if (!squares.has(key)) squares.set(key, {column, row, first, last, bytes: 0n, versions: 0, cells: []});
      const square = squares.get(key);
      square.first = Math.min(square.first, first);
      square.last = Math.max(square.last, last);
      square.bytes += cell.bytes;
      square.versions += cell.versions;
      square.cells.push(cell);
    }
    return [...squares.values()].sort((one, other) => one.row - other.row || one.column - other.column);
  }

  drawLegend(parent, strength, largest) {
    const legend = element("ul", parent, {className: "legend"}, {"aria-label": "Colours of the matrix"});
    const swatch = (attributes, meaning) => {
      const line = element("li", legend);
      const box = shape("svg", line, {viewBox: "-0.1 -0.1 1.2 1.2", "aria-hidden": true});
      shape("rect", box, {width: 1, height: 1, ...attributes});
      line.append(meaning);
    };
    const smallest = Math.min(largest, ...this.squares.map((one) => Math.max(1, Number(one.bytes))));
    const from = Math.ceil(Math.log2(smallest)), to = Math.floor(Math.log2(largest));
    const powers = new Set();
    for (let number = 0; number < MOST_SWATCHES; number += 1)
      powers.add(Math.round(from + (to - from) * number / (MOST_SWATCHES - 1)));
    for (const power of powers) swatch({"fill-opacity": strength(2 ** power)}, bytesText(2 ** power));
    swatch({class: "freed"}, "framed: freed by what is chosen");
  }

  drawTicks(axis, side, rows) {
    const every = Math.ceil(rows / MOST_TICKS);
    for (let row = 0; row < rows; row += every) {
      const group = this.groups[row * this.step];
      const tick = element("span", axis, {textContent: group.from.slice(0, 16) || shortened(group.name)});
      tick.style[side] = `${100 * (row + 0.5) / rows}%`;
    }
  }

  drawSquare(matrix, square, strength) {
    const {column, row, first, last} = square;
    const range = first === last ? this.groups[first].name : `${this.groups[first].name} to ${this.groups[last].name}`;
    const gaps = square.cells.some((cell) => cell.runs.length > 1) ? ", with gaps" : "";
    square.rect = shape("rect", matrix, {x: column + 0.05, y: row + 0.05, width: 0.9, height: 0.9, role: "button",
      tabindex: -1, "fill-opacity": strength(Number(square.bytes)),
      "aria-label": `held by ${range}${gaps}: ${bytesText(square.bytes)}, ${counted(square.versions, "version")}`});
  }

  listen(matrix, readout) {
    const squares = new Map(this.squares.map((square) => [square.rect, square]));
    if (this.squares.length) this.squares[0].rect.setAttribute("tabindex", "0");
    const tell = (event) => {
      if (squares.has(event.target)) readout.textContent = event.target.getAttribute("aria-label");
    };
    const take = (square, isAdded) => {
      moveFocus(matrix.querySelector("[tabindex='0']"), square.rect);
      const holders = new Set(square.cells.flatMap(({runs}) => [...placesOf(runs)]));
      this.choose((group, place) => holders.has(place) || (isAdded && this.chosen[place]));
      this.scrollToChosen();
    };
    matrix.addEventListener("pointerover", tell);
    matrix.parentNode.addEventListener("focusin", tell); // with this on the svg, the svg itself would take the focus
    matrix.addEventListener("click", (event) => {
      if (squares.has(event.target)) take(squares.get(event.target), event.shiftKey);
    });
    matrix.addEventListener("keydown", (event) => {
      const from = squares.get(event.target);
      const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (!from || !(way || event.key === " " || event.key === "Enter")) return;
      event.preventDefault();
      if (way) moveFocus(from.rect, this.nearest(from, way)?.rect);
      else take(from, event.shiftKey);
    });
  }

  nearest(from, [across, down]) {
    const distance = (square) => {
      const x = square.column - from.column, y = square.row - from.row;
      const ahead = across * x + down * y, aside = Math.abs(down * x) + Math.abs(across * y);
      return ahead > 0 ? ahead + 3 * aside : Infinity;
    };
    return this.squares.reduce((best, one) => distance(one) < (best ? distance(best) : Infinity) ? one : best, null);
  }

  toggle(place, isRange) {
    const value = !this.chosen[place];
    const from = isRange ? Math.min(this.lastChanged, place) : place, to = isRange ? Math.max(this.lastChanged, place) : place;
    this.lastChanged = place;
    this.choose((group, at) => at >= from && at <= to ? value : this.chosen[at]);
  }

  choose(decide) {
    this.chosen = this.groups.map((group, place) => group.isDroppable && Boolean(decide(group, place)));
    this.show();
  }

  scrollToChosen() {
    const place = this.chosen.indexOf(true);
    if (place >= 0) this.timeline.scrollLeft = this.buttons[place].offsetLeft - this.timeline.offsetLeft - 40;
  }

  chooseNames(names) {
    const wanted = new Set(names);
    this.choose((group) => group.names.every((name) => wanted.has(name)));
    this.scrollToChosen();
  }

  show() {
    this.buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(this.chosen[place])));
    const sum = sumWithin(this.cells, this.chosen);
    for (const square of this.squares)
      square.rect.classList.toggle("freed", square.cells.some((cell) => sum.cells.has(cell)));
    const groups = this.groups.filter((_, place) => this.chosen[place]);
    const names = groups.flatMap((group) => group.names);
    const guards = [...new Set(groups.flatMap((group) => group.protectedBy))];
    this.names.value = names.map(quoted).join(" ");
    this.names.parentNode.hidden = this.copy.hidden = !names.length;
    this.changed(names, guards);
    this.tell(names, guards, sum);
  }

  async tell(names, guards, sum) {
    const question = this.question += 1;
    if (!names.length) { this.answer.textContent = "Choose snapshots to see what dropping them together frees."; return; }
    const text = this.freed ? await this.freed(names)
      : `${this.about}${bytesText(sum.bytes)} (${bytesText(sum.replicated)} on disks), ${counted(sum.versions, "version")}`;
    if (question !== this.question || text === null) return; // something else was chosen meanwhile
    const shown = names.length > MOST_NAMES ? counted(names.length, "snapshot") : names.join(", ");
    this.answer.textContent = `Dropping ${shown} frees `;
    element("b", this.answer, {textContent: text});
    this.answer.append(".");
    if (guards.length) this.answer.append(` Protected by ${guards.join(", ")}: as if that were removed first.`);
  }
}
