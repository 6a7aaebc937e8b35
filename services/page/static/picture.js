// The chain of a bucket as a timeline, and its space matrix as a picture, in which one chooses snapshots and sees what
// dropping them together frees. Without somebody to ask, it adds up the cells that it has drawn.
import {bytesText, counted, element, moveFocus, quoted, shortened} from "./elements.js";
import {Matrix} from "./matrix.js";

const MANY = 200; // snapshots of a timeline: those that cannot be seen are laid out when they can
const MOST_NAMES = 6;

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

// A button of the timeline. Its mark and its name are drawn by the style: neither is a text for a screen reader, which
// has the label, and a thousand buttons are no more elements than they have to be.
function drawButton(group, held, alone, highest) {
  const state = !group.isDroppable ? "fixed" : group.protectedBy.length ? "protected" : "";
  const why = !group.isDroppable ? ", cannot be dropped"
    : group.protectedBy.length ? `, protected by ${group.protectedBy.join(", ")}` : "";
  const button = document.createElement("button");
  Object.assign(button, {type: "button", className: state, tabIndex: -1});
  button.setAttribute("aria-label", `${group.name}${group.time ? ", " + group.time : ""}${why}: ` +
    `holds ${bytesText(held)} that is not live, ${bytesText(alone)} alone`);
  button.setAttribute("aria-disabled", String(!group.isDroppable));
  button.dataset.name = shortened(group.name);
  const {style} = element("i", button);
  style.setProperty("--held-height", `${100 * Number(held) / highest}px`);
  style.setProperty("--alone-height", `${100 * Number(alone) / highest}px`);
  return button;
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
    this.matrix = new Matrix(picture, this.groups, this.cells, (square, isAdded) => this.take(square, isAdded));
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
    this.buttons = groups.map((group, place) => drawButton(group, held[place], alone[place], highest));
    this.timeline.append(...this.buttons);
    this.buttons[0].tabIndex = 0;
    this.listen(element("p", parent, {className: "readout"}));
  }

  // One listener for all buttons: of a thousand, most are never reached.
  listen(readout) {
    const {timeline} = this;
    const placeOf = (event) => this.buttons.indexOf(event.target.closest("button"));
    const tell = (event) => {
      const button = this.buttons[placeOf(event)];
      if (button) readout.textContent = button.getAttribute("aria-label");
    };
    timeline.addEventListener("pointerover", tell);
    timeline.addEventListener("focusin", tell);
    timeline.addEventListener("click", (event) => {
      const place = placeOf(event);
      if (place < 0) return;
      moveFocus(timeline.querySelector("[tabindex='0']"), this.buttons[place]);
      if (this.groups[place].isDroppable) this.toggle(place, event.shiftKey);
    });
    timeline.addEventListener("keydown", (event) => {
      const from = placeOf(event);
      const to = {ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: this.buttons.length - 1}[event.key];
      if (from < 0 || to === undefined) return;
      event.preventDefault();
      moveFocus(this.buttons[from], this.buttons[to]);
    });
  }

  take(square, isAdded) {
    const holders = new Set(square.cells.flatMap(({runs}) => [...placesOf(runs)]));
    this.choose((group, place) => holders.has(place) || (isAdded && this.chosen[place]));
    this.scrollToChosen();
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
    this.matrix.show(sum.cells);
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
    if (guards.length) this.answer.append(` Protected by ${guards.join(", ")}: the figure assumes that this protection is removed first.`);
  }
}
