// The plane as a whole: what is wrong, its buckets, bytes over time, and the way of a deletion.
import {ask} from "./api.js";
import {element, table} from "./elements.js";
import {drawHistory} from "./history.js";
import {say, showError} from "./acts.js";

const STATES = ["live", "held", "pending", "claimed", "freed"];

export function bucketAddress(volume, bucket) {
  return `#/bucket/${encodeURIComponent(volume)}/${encodeURIComponent(bucket)}`;
}

const PATIENCE_MS = 300; // with the buckets, before the rest is shown without them

function part(parent, title) {
  const section = element("section", parent);
  element("h2", section, {textContent: title});
  return element("div", section);
}

export class PlaneView {
  constructor(main) {
    element("h1", main, {textContent: "The plane"});
    this.main = main;
    this.parts = document.createElement("div");
    this.troubles = part(this.parts, "What is wrong now");
    this.buckets = part(this.parts, "Buckets");
    this.history = part(this.parts, "Bytes over time");
    this.way = part(this.parts, "The way of a deletion");
    this.processes = part(this.parts, "Processes");
    this.shown = {};
    this.round = 0;
  }

  // Shows all parts at once, so that nothing that a reader looks at moves. Buckets that take long come later.
  async load(asked) {
    const bytes = this.refreshBytes();
    this.refreshPlane(await asked);
    await Promise.race([bytes, new Promise((done) => { setTimeout(done, PATIENCE_MS); })]);
    this.main.append(this.parts);
    await bytes;
  }

  // Draws a part only when it is another one than before: what a reader has focused or selected stays.
  draw(name, value, drawing) {
    const text = JSON.stringify(value);
    if (this.shown[name] === text) return;
    this.shown[name] = text;
    drawing(this[name], value);
  }

  async refresh(plane) {
    this.refreshPlane(plane);
    this.round += 1;
    if (this.round % 2 === 0) await this.refreshBytes();
  }

  refreshPlane(plane) {
    if (plane.error) {
      this.draw("troubles", plane.error, (parent, message) => showError(parent, new Error(message)));
      for (const name of ["way", "processes"]) this.draw(name, null, drawUnknown);
    } else if (plane.troubles) {
      this.draw("troubles", plane.troubles, drawTroubles);
      this.draw("way", plane.stations, drawWay);
      this.draw("processes", plane.processes, drawProcesses);
    } else this.draw("troubles", null, (parent) => element("p", parent, {textContent: "Looking …"}));
  }

  async refreshBytes() {
    try {
      const [buckets, points] = await Promise.all([ask("buckets"), ask("history")]);
      this.draw("buckets", buckets, drawBuckets);
      this.draw("history", points, drawHistory);
    } catch (error) {
      this.shown.buckets = undefined;
      showError(this.buckets, error);
    }
  }
}

function drawUnknown(parent) {
  parent.replaceChildren();
  element("p", parent, {className: "quiet", textContent: "Not known now."});
}

function drawTroubles(parent, troubles) {
  parent.replaceChildren();
  if (!troubles.length) { element("p", parent, {textContent: "Nothing: all processes run, and nothing is suspended."}); return; }
  const urgent = troubles.filter((one) => one.is_urgent).length;
  say(`${troubles.length} to look at, ${urgent} of it urgent.`);
  const list = element("ul", parent, {className: "troubles"});
  for (const {is_urgent: isUrgent, what, action, command} of troubles) {
    const item = element("li", list, {className: isUrgent ? "urgent" : ""});
    element("b", item, {textContent: isUrgent ? "Urgent. " : ""});
    item.append(what, " ");
    element("span", item, {textContent: action, className: "quiet"});
    if (command) element("code", item, {textContent: command});
  }
}

function drawBuckets(parent, {buckets, note}) {
  const focused = document.activeElement?.getAttribute("href");
  parent.replaceChildren();
  if (!buckets.length) { element("p", parent, {textContent: "There is no bucket yet: deepclean bucket create makes one."}); return; }
  if (note) element("p", parent, {className: "quiet", textContent: note});
  table(parent, "Buckets by their bytes", [["bucket", "text"], ["snapshots"], ...STATES.map((state) => [state])],
    buckets.map(({volume, bucket, snapshots, states}) => {
      const link = document.createElement("a");
      link.href = bucketAddress(volume, bucket);
      link.textContent = `${volume}/${bucket}`;
      return [link, snapshots.toLocaleString("en"), ...STATES.map((state) => states[state].text)];
    }));
  if (focused) [...parent.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
}

function drawWay(parent, stations) {
  parent.replaceChildren();
  element("p", parent, {className: "quiet", textContent:
    "Each deleted version passes these stations, unless a snapshot holds it. Rates are those of the last seconds."});
  const list = element("ol", parent, {className: "way"});
  for (const one of stations) {
    const item = element("li", list, {className: one.is_answering ? "" : "silent"});
    element("h3", item, {textContent: one.name});
    element("p", item, {className: "quiet", textContent: `${one.process} ${one.does}`});
    if (!one.is_answering) { element("p", item, {textContent: "Not known: it does not answer."}); continue; }
    const facts = element("dl", item);
    const age = one.age_seconds >= 0.05 ? `${one.age_seconds.toFixed(1)} s behind` : "not behind";
    for (const [name, value] of [["rate", one.rate], ["waiting", one.waits], ["age", age]]) {
      element("dt", facts, {textContent: name});
      element("dd", facts, {textContent: value});
    }
  }
}

function drawProcesses(parent, processes) {
  parent.replaceChildren();
  table(parent, "Processes", [["process", "text"], ["state", "text"], ["restarts"], ["messages/s"], ["behind"], ["dead letters"]],
    processes.map((one) => [one.is_here ? one.name : `${one.name} at ${one.url.replace(/^.*\/\//, "")}`,
      !one.is_alive ? "not running" : one.is_answering || one.name === "broker" ? "running" : "silent",
      one.is_here ? one.restarts : "", one.messages_per_second.toFixed(0), one.lag_messages.toLocaleString("en"), one.dead_letters]));
}
