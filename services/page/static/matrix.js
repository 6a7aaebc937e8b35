// The space matrix of a bucket as a picture: a square for what one snapshot holds first and another one last.
// Squares of one strength are one shape, so that thousands are drawn at once. Only the square that the keyboard has
// reached is an element of its own.
import {bytesText, counted, element, shape, shortened, tableOnDemand} from "./elements.js";

const MOST_ROWS = 100; // smaller squares are hard to hit
const MARGIN = 0.2; // around all squares, in squares
const MOST_TICKS = 8;
const MOST_SWATCHES = 5;
const MOST_TABLE_ROWS = 200;
const WAYS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

function keyOf(column, row) { return `${column} ${row}`; }

// The cells as squares, from above and from left to right. A row or a column is a number of neighbouring groups.
function squaresOf(cells, step) {
  const squares = new Map();
  for (const cell of cells) {
    const first = cell.runs[0][0], last = cell.runs[cell.runs.length - 1][1];
    const column = Math.floor(first / step), row = Math.floor(last / step), key = keyOf(column, row);
    let square = squares.get(key);
    if (!square) squares.set(key, square = {column, row, first, last, bytes: 0n, versions: 0, cells: []});
    square.first = Math.min(square.first, first);
    square.last = Math.max(square.last, last);
    square.bytes += cell.bytes;
    square.versions += cell.versions;
    square.cells.push(cell);
  }
  return [...squares.values()].sort((one, other) => one.row - other.row || one.column - other.column);
}

function outline({column, row}) { return `M${column + 0.05} ${row + 0.05}h.9v.9h-.9z`; }

export class Matrix {
  // "taken" is told which square somebody chooses, and whether it is added to what is chosen.
  constructor(parent, groups, cells, taken) {
    this.groups = groups;
    this.taken = taken;
    this.step = Math.ceil(groups.length / MOST_ROWS);
    this.rows = Math.ceil(groups.length / this.step);
    this.squares = squaresOf(cells, this.step);
    this.places = new Map(this.squares.map((square) => [keyOf(square.column, square.row), square]));
    this.largest = this.squares.reduce((most, one) => Math.max(most, Number(one.bytes)), 1);
    element("h3", parent, {textContent: "Matrix"});
    element("p", parent, {className: "quiet", textContent:
      "A square is what one snapshot holds first and another one last; the diagonal is what one snapshot alone holds. " +
      (this.step > 1 ? `A row or column is ${this.step} neighbours. ` : "") +
      "Click on a square to choose all that hold it, with shift to add them; arrow keys move, space chooses."});
    this.drawLegend(parent);
    this.drawPlot(parent);
    this.readout = element("p", parent, {className: "readout"});
    this.drawTable(parent);
    this.listen();
  }

  // How much of its colour a square has. Two digits are more than an eye sees, and few enough shapes.
  strength(bytes) {
    return (0.08 + 0.92 * (Math.log(1 + bytes) / Math.log(1 + this.largest)) ** 3).toFixed(2);
  }

  drawPlot(parent) {
    const {rows} = this;
    const plot = element("div", parent, {className: "plot"});
    element("p", plot, {className: "side", textContent: "last holder ↓"});
    this.drawTicks(element("div", plot, {className: "rows"}, {"aria-hidden": true}), "top");
    const side = rows + 2 * MARGIN;
    this.drawn = shape("svg", plot, {viewBox: `${-MARGIN} ${-MARGIN} ${side} ${side}`, class: "matrix", role: "group",
      "aria-label": "Bytes by first and last holder"});
    this.drawTicks(element("div", plot, {className: "columns"}, {"aria-hidden": true}), "left");
    element("p", plot, {textContent: "first holder →"});
    let diagonal = "";
    for (let place = 0; place < rows; place += 1) diagonal += `M${place} ${place}h1v1h-1z`;
    shape("path", this.drawn, {d: diagonal, class: "empty"});
    this.layers = shape("g", this.drawn, {class: "squares"});
    if (this.squares.length) this.point(this.squares[0]);
  }

  drawTicks(axis, side) {
    const every = Math.ceil(this.rows / MOST_TICKS);
    for (let row = 0; row < this.rows; row += every) {
      const group = this.groups[row * this.step];
      const tick = element("span", axis, {textContent: group.from.slice(0, 16) || shortened(group.name)});
      tick.style[side] = `${100 * (row + 0.5) / this.rows}%`;
    }
  }

  drawLegend(parent) {
    const legend = element("ul", parent, {className: "legend"}, {"aria-label": "Colours of the matrix"});
    const swatch = (attributes, meaning) => {
      const line = element("li", legend);
      const box = shape("svg", line, {viewBox: "-0.1 -0.1 1.2 1.2", "aria-hidden": true, class: "squares"});
      shape("path", box, {d: "M0 0h1v1h-1z", ...attributes});
      line.append(meaning);
    };
    const smallest = this.squares.reduce((least, one) => Math.min(least, Math.max(1, Number(one.bytes))), this.largest);
    const from = Math.ceil(Math.log2(smallest)), to = Math.floor(Math.log2(this.largest));
    const powers = new Set();
    for (let number = 0; number < MOST_SWATCHES; number += 1)
      powers.add(Math.round(from + (to - from) * number / (MOST_SWATCHES - 1)));
    for (const power of powers) swatch({"fill-opacity": this.strength(2 ** power)}, bytesText(2 ** power));
    swatch({class: "freed"}, "framed: freed by what is chosen");
  }

  drawTable(parent) {
    const summary = this.squares.length > MOST_TABLE_ROWS
      ? `The ${MOST_TABLE_ROWS} largest squares as a table` : "The matrix as a table";
    tableOnDemand(parent, summary, "Bytes by first and last holder",
      [["first holder", "text"], ["last holder", "text"], ["bytes"], ["versions"]], () => {
        const largest = [...this.squares].sort((one, other) => Number(other.bytes - one.bytes)).slice(0, MOST_TABLE_ROWS);
        return largest.map(({first, last, bytes, versions}) =>
          [this.groups[first].name, this.groups[last].name, bytesText(bytes), versions.toLocaleString("en")]);
      });
  }

  // Draws all squares anew, and frames those with a cell that is freed.
  show(freed) {
    const outlines = {"": new Map(), freed: new Map()};
    for (const square of this.squares) {
      const ofKind = outlines[square.cells.some((cell) => freed.has(cell)) ? "freed" : ""];
      const strength = this.strength(Number(square.bytes));
      ofKind.set(strength, (ofKind.get(strength) || "") + outline(square));
    }
    this.layers.replaceChildren();
    for (const [kind, ofKind] of Object.entries(outlines)) // what is framed lies above what is not
      for (const [strength, d] of ofKind) shape("path", this.layers, {d, "fill-opacity": strength, class: kind});
  }

  wordsOf({first, last, bytes, versions, cells}) {
    const range = first === last ? this.groups[first].name : `${this.groups[first].name} to ${this.groups[last].name}`;
    const gaps = cells.some((cell) => cell.runs.length > 1) ? ", with gaps" : "";
    return `held by ${range}${gaps}: ${bytesText(bytes)}, ${counted(versions, "version")}`;
  }

  // Makes a square the one that the keyboard is at. It is a new element each time, so that a screen reader reads it.
  point(square) {
    const {column, row} = square, before = this.pointer;
    this.pointed = square;
    this.pointer = shape("rect", this.drawn, {x: column + 0.05, y: row + 0.05, width: 0.9, height: 0.9, role: "button",
      tabindex: 0, "aria-label": this.wordsOf(square)});
    if (!before) return;
    this.pointer.focus();
    before.remove();
  }

  squareAt(event) {
    if (event.target === this.pointer) return this.pointed; // what a screen reader clicks on has no coordinates
    if (!this.layers.contains(event.target)) return undefined;
    const box = this.drawn.getBoundingClientRect(), side = this.rows + 2 * MARGIN;
    const placeOf = (part, whole) => Math.floor(part / whole * side - MARGIN);
    return this.places.get(keyOf(placeOf(event.clientX - box.left, box.width), placeOf(event.clientY - box.top, box.height)));
  }

  listen() {
    const {drawn, readout} = this;
    drawn.addEventListener("pointermove", (event) => {
      const square = this.squareAt(event);
      if (square) readout.textContent = this.wordsOf(square);
    });
    // With this on the svg, the svg itself would take the focus.
    drawn.parentNode.addEventListener("focusin", () => { readout.textContent = this.wordsOf(this.pointed); });
    drawn.addEventListener("click", (event) => {
      const square = this.squareAt(event);
      if (!square) return;
      this.point(square);
      this.taken(square, event.shiftKey);
    });
    drawn.addEventListener("keydown", (event) => {
      const way = WAYS[event.key];
      if (!way && event.key !== " " && event.key !== "Enter") return;
      event.preventDefault();
      if (!way) { this.taken(this.pointed, event.shiftKey); return; }
      const next = this.nearest(way);
      if (next) this.point(next);
    });
  }

  // The square that is next in a direction from the one that the keyboard is at, if there is one.
  nearest([across, down]) {
    const from = this.pointed;
    let found, shortest = Infinity;
    for (const square of this.squares) {
      const x = square.column - from.column, y = square.row - from.row;
      const ahead = across * x + down * y, distance = ahead + 3 * (Math.abs(down * x) + Math.abs(across * y));
      if (ahead > 0 && distance < shortest) { found = square; shortest = distance; }
    }
    return found;
  }
}
