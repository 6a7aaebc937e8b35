// One bucket: its bytes, its snapshots as pictures, a plan for a wanted size, and further parts below.
import {ask, Newest, post} from "./api.js";
import {bytesText, element, table} from "./elements.js";
import {drawHistory} from "./history.js";
import {Picture} from "./picture.js";
import {act, bytesInWords, mayAct, showError} from "./acts.js";
import {CollectionPart, DiffPart, ExplainPart, RetentionPart, section} from "./bucket_parts.js";

const STEPS = 1000;
const TYPING_MS = 150;

export class BucketView {
  constructor(main, volume, bucket) {
    this.names = {volume, bucket};
    element("h1", main, {textContent: `${volume}/${bucket}`});
    this.outcome = element("div", main, {className: "done", tabIndex: -1}); // of the last act; it stays when all is drawn anew
    this.main = main;
    this.round = 0;
  }

  // Asks for all of the bucket and draws it; after an act once more. Of the plane it has to know whether acts are allowed.
  // All is shown at once, so that nothing that a reader looks at moves.
  async load(plane = this.plane) {
    const [answer, known] = await Promise.all([ask("bucket", this.names), plane]);
    this.plane = known;
    const parts = document.createElement("div");
    const contents = drawContents(parts);
    this.drawBytes(parts, answer);
    const picture = this.drawSnapshots(parts, answer);
    const plan = section(parts, "Free a size");
    for (const Part of [ExplainPart, DiffPart, RetentionPart, CollectionPart]) new Part(this, parts, answer);
    for (const title of parts.querySelectorAll("section > h2")) addLink(contents, title);
    if (this.parts) this.parts.replaceWith(parts); else this.main.append(parts);
    this.parts = parts;
    this.drawPlan(plan, picture);
    await this.refresh(this.plane);
  }

  async refresh(plane) {
    this.plane = plane;
    const isDue = this.round % 2 === 0;
    this.round += 1;
    if (!this.history || !isDue) return;
    try {
      const points = await ask("history", this.names);
      const text = JSON.stringify(points);
      if (points.length && text !== this.shown) drawHistory(this.history, JSON.parse(this.shown = text));
    } catch (error) {
      this.shown = "";
      showError(this.history, error);
    }
  }

  // The history begins with what is known now: before the first observation of the watch there is no other figure.
  drawBytes(parts, {notes, states, amounts, as_of: asOf}) {
    const parent = section(parts, "Bytes");
    element("p", parent, {className: "quiet", textContent: `As of ${asOf}.`});
    for (const textContent of notes) element("p", parent, {className: "note", textContent});
    table(parent, "Bytes by state", [["where", "text"], ["bytes"], ["on disks"], ["versions"], ["goes when", "text"]],
      states.map((one) => [one.state, one.size, one.on_disks, one.versions, one.goes]));
    element("h3", parent, {textContent: "Over time"});
    this.history = element("div", parent);
    [this.shown, this.round] = ["", 0];
    drawHistory(this.history, [{at_ms: Date.now(), ...Object.fromEntries(amounts.map(({state, bytes}) => [`${state}_bytes`, bytes]))}]);
  }

  drawSnapshots(parts, {picture}) {
    const parent = section(parts, "Snapshots");
    const asked = new Newest();
    const button = document.createElement("button");
    Object.assign(button, {type: "button", className: "act", hidden: true});
    let freedBytes = "0", chosen = [];
    const drawn = new Picture(element("div", parent, {className: "picture"}), picture, {
      freed: async (names) => {
        button.disabled = true;
        try {
          const answer = await asked.of((signal) => post("what-if", {...this.names, names}, signal));
          if (answer === null) return null;
          freedBytes = answer.freed_bytes;
          button.disabled = false;
          button.textContent = `Delete these snapshots: free ${bytesText(freedBytes)} …`;
          return answer.text;
        } catch (error) {
          return `an unknown number of bytes (${error.message})`;
        }
      },
      changed: (names) => {
        chosen = names;
        button.hidden = !names.length || !mayAct(this.plane);
      },
    });
    button.onclick = () => act(this, {
      title: `Delete ${chosen.length === 1 ? chosen[0] : `${chosen.length} snapshots`}?`,
      sentences: [chosen.join(", "), `This frees ${bytesInWords(freedBytes)}. Nothing brings a deleted snapshot back.`],
      verb: `Delete, and free ${bytesText(freedBytes)}`,
      path: "delete-snapshots", body: {...this.names, names: chosen, confirmed_bytes: freedBytes},
    });
    if (drawn.answer) drawn.answer.after(button);
    if (picture.groups.length) this.drawSizes(parent);
    return drawn;
  }

  drawSizes(parent) {
    const details = element("details", parent);
    element("summary", details, {textContent: "All snapshots with their sizes, and why each one stays"});
    const output = element("div", details);
    details.addEventListener("toggle", async () => {
      if (output.querySelector("table")) return;
      try { showSizes(output, await ask("snapshots", this.names)); } catch (error) { showError(output, error); }
    });
  }

  async drawPlan(parent, picture) {
    let most;
    try { most = (await ask("plan/most", this.names)).most_bytes; } catch (error) { showError(parent, error); return; }
    if (BigInt(most) === 0n) {
      element("p", parent, {textContent: "No snapshot that may go holds a byte alone or with others that may go."});
      return;
    }
    element("p", parent, {className: "quiet", textContent:
      `The fewest snapshots that free at least what you want, older ones first. All that may go hold ${bytesText(most)}.`});
    const label = element("label", parent, {textContent: "Bytes to free"});
    const slider = element("input", label, {type: "range", min: 0, max: STEPS, value: 0, className: "slider"},
      {"aria-valuetext": "0 B"});
    const form = element("form", parent, {className: "tools"});
    const typed = element("input", element("label", form, {textContent: "or a size "}), {type: "text", placeholder: "10GiB", size: 10});
    element("button", form, {type: "submit", textContent: "Plan"});
    const output = element("div", parent, {className: "outcome"}, {"aria-live": "polite"});
    const newest = new Newest(TYPING_MS);
    const plan = async (size) => {
      try {
        const answer = await newest.of((signal) => ask("plan", {...this.names, size}, signal));
        if (answer) { showPlan(output, answer); picture.chooseNames(answer.names); }
      } catch (error) { showError(output, error); }
    };
    slider.oninput = () => {
      const bytes = BigInt(most) * BigInt(slider.value) / BigInt(STEPS);
      slider.setAttribute("aria-valuetext", bytesText(bytes));
      plan(String(bytes));
    };
    form.onsubmit = (event) => { event.preventDefault(); plan(typed.value); };
  }
}

function drawContents(parts) {
  return element("ul", element("nav", parts, {className: "contents"}, {"aria-label": "Parts of this page"}));
}

function addLink(contents, title) {
  const button = element("button", element("li", contents), {type: "button", textContent: title.textContent});
  button.onclick = () => { title.tabIndex = -1; title.focus(); title.scrollIntoView(); };
}

function showPlan(parent, {names, text, wanted_bytes: wanted, notes}) {
  parent.replaceChildren();
  element("p", parent, {textContent: `For ${bytesText(wanted)}: ` + (names.length
    ? `deleting ${names.length === 1 ? "this snapshot" : `these ${names.length.toLocaleString("en")} snapshots`} would free ${text}.`
    : "no snapshot has to go.")});
  for (const textContent of notes) element("p", parent, {className: "note", textContent});
  if (names.length) element("p", parent, {className: "names", textContent: names.join(", ")});
}

function showSizes(parent, snapshots) {
  parent.replaceChildren();
  const columns = ["created", "referenced", "exclusive", "shared with previous", "shared with next"];
  table(parent, "Snapshots", [["snapshot", "text"], ...columns.map((name) => [name]), ["it stays because", "sentence"]],
    snapshots.map((one) => [one.name, one.created, ...one.sizes, one.why]));
}
