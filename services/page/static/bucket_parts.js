// Further parts of a bucket: who holds a path or a block, what differs between two states, retention, and collection.
import {ask, Newest, post} from "./api.js";
import {element, onceNear, table, tableOnDemand} from "./elements.js";
import {act, bytesInWords, mayAct, showError} from "./acts.js";

const TYPING_MS = 200;
const ACTIVE = "active";
const OPEN_LEVELS = 2;
const MARKS = {deleted: "−", renamed: "→", created: "+", modified: "~"};

export function section(parts, title) {
  const made = element("section", parts);
  element("h2", made, {textContent: title});
  return element("div", made);
}

function field(form, label, properties) {
  return element("input", element("label", form, {textContent: `${label} `}), properties);
}

export class ExplainPart {
  constructor(view, parts) {
    const parent = section(parts, "Who holds a path or a block");
    this.names = view.names;
    const form = element("form", parent, {className: "tools"});
    this.input = field(form, "Path", {type: "text", size: 40, required: true, autocomplete: "off", spellcheck: false});
    this.input.setAttribute("list", "paths");
    this.paths = element("datalist", form, {id: "paths"});
    element("button", form, {type: "submit", textContent: "Explain"});
    const ofBlock = element("form", parent, {className: "tools"});
    this.block = field(ofBlock, "or a block, by its local id", {type: "text", size: 20, required: true, autocomplete: "off",
      inputMode: "numeric"});
    element("button", ofBlock, {type: "submit", textContent: "Find"});
    this.output = element("div", parent, {}, {"aria-live": "polite"});
    this.typing = new Newest(TYPING_MS);
    this.asking = new Newest();
    this.input.oninput = () => this.complete();
    form.onsubmit = (event) => { event.preventDefault(); this.explain(); };
    ofBlock.onsubmit = (event) => { event.preventDefault(); this.find(); };
  }

  async complete() {
    try {
      const found = await this.typing.of((signal) => ask("paths", {...this.names, beginning: this.input.value}, signal));
      this.paths.replaceChildren();
      for (const value of found || []) element("option", this.paths, {value});
    } catch { this.paths.replaceChildren(); } // what is typed can be asked for without it
  }

  async explain() {
    try {
      const answer = await this.asking.of((signal) => ask("explain", {...this.names, path: this.input.value}, signal));
      if (answer) this.show(answer);
    } catch (error) { showError(this.output, error); }
  }

  // A bucket of many rows is searched page by page: a page takes the plane about a second.
  async find() {
    const asked = {...this.names, local_id: this.block.value.trim()};
    try {
      const answer = await this.asking.of(async (signal) => {
        let found = await ask("explain/block", asked, signal);
        if (found.next_start) {
          this.output.replaceChildren();
          element("p", this.output, {textContent: "Searching …"});
        }
        while (found.next_start) {
          found = await ask("explain/block", {...asked, start: found.next_start}, signal);
        }
        return found;
      });
      if (answer) this.showBlock(answer);
    } catch (error) { showError(this.output, error); }
  }

  showBlock({fields, holders}) {
    this.output.replaceChildren();
    const list = element("dl", this.output, {className: "facts"});
    for (const [name, textContent] of fields) {
      element("dt", list, {textContent: name});
      element("dd", list, {textContent});
    }
    this.showHolders(holders);
  }

  showHolders(holders) {
    if (!holders.length) return;
    table(this.output, "Holders", [["snapshot", "text"], ["created"], ["it stays because", "sentence"], ["until", "text"]],
      holders.map((one) => [one.name, one.created, one.why, one.until]));
  }

  show({path, as_of: asOf, size, holders, versions, notes}) {
    this.output.replaceChildren();
    const held = holders.length ? `${holders.length.toLocaleString("en")} snapshot${holders.length === 1 ? " holds" : "s hold"} it`
      : "No snapshot holds it";
    element("p", this.output, {className: "answer", textContent: `${path}: ${size}. ${held} (${asOf}).`});
    for (const textContent of notes) element("p", this.output, {textContent});
    this.showHolders(holders);
    if (versions.length)
      table(this.output, "Versions",
        [["committed", "text"], ["bytes"], ["born"], ["died"], ["stage", "text"], ["held by", "text"], ["goes when", "sentence"]],
        versions.map((one) => [one.committed, one.size, one.born, one.died, one.stage, one.held_by, one.goes]));
  }
}

// A list of which only the chosen name is made at first: of a thousand names, a browser makes ten thousand nodes.
function choice(form, label, names, chosen) {
  const list = element("select", element("label", form, {textContent: `${label} `}));
  list.add(new Option(chosen, chosen));
  const place = names.indexOf(chosen), option = (name) => new Option(name, name);
  onceNear(form, () => {
    list.prepend(...names.slice(0, place).map(option));
    list.append(...names.slice(place + 1).map(option));
  });
  return list;
}

export class DiffPart {
  constructor(view, parts, {picture}) {
    const parent = section(parts, "Compare two states");
    this.names = view.names;
    const names = picture.groups.flatMap((group) => group.names);
    if (!names.length) { element("p", parent, {textContent: "No snapshot to compare with."}); return; }
    const form = element("form", parent, {className: "tools"});
    this.from = choice(form, "From", names, names[0]);
    this.to = choice(form, "to", [...names, ACTIVE], ACTIVE);
    element("button", form, {type: "submit", textContent: "Compare"});
    this.output = element("div", parent, {}, {"aria-live": "polite"});
    this.newest = new Newest();
    form.onsubmit = (event) => { event.preventDefault(); this.compare(); };
  }

  async compare() {
    const asked = {...this.names, from: this.from.value, to: this.to.value};
    try {
      const answer = await this.newest.of(async (signal) => {
        let job = await post("diff", asked, signal);
        while (!job.has_ended) {
          this.output.replaceChildren();
          element("p", this.output, {textContent: `${job.state}, ${job.percent} %`});
          job = await ask("diff/job", {...this.names, job_id: job.job_id}, signal);
        }
        return job;
      });
      if (answer) this.show(answer, asked);
    } catch (error) { showError(this.output, error); }
  }

  show({summary, note, rows, state, message}, {from, to}) {
    this.output.replaceChildren();
    if (!rows) { showError(this.output, new Error(message || `The diff is ${state}.`)); return; }
    element("p", this.output, {className: "answer", textContent: `From ${from} to ${to}: ${summary}.`});
    if (note) element("p", this.output, {className: "note", textContent: note});
    const lists = [element("ul", this.output, {className: "tree"})];
    rows.forEach(({depth, name, marks, below}, place) => {
      lists.length = depth + 1;
      const item = element("li", lists[depth]);
      const isParent = rows[place + 1]?.depth === depth + 1;
      const details = isParent ? element("details", item, {open: depth < OPEN_LEVELS}) : item;
      const line = isParent ? element("summary", details) : element("span", details);
      line.append(isParent ? `${name}/ ` : `${name} `);
      for (const {kind, from: old} of marks)
        element("span", line, {className: `mark ${kind}`, textContent: `${MARKS[kind]} ${kind}${old ? ` from ${old}` : ""} `});
      if (below) element("span", line, {className: "quiet", textContent: `(${below} below)`});
      if (isParent) lists.push(element("ul", details));
    });
  }
}

const FIELDS = [["num_retained_min", "Always keep the newest", "number"], ["num_retained_max", "keep at most (0: any)", "number"],
  ["time_retained", "keep until the next one is older than", "text"], ["expire_limit", "a run considers the oldest", "number"],
  ["consumer_expiration", "forget consumers after (0s: never)", "text"]];

export class RetentionPart {
  constructor(view, parts) {
    this.view = view;
    const parent = section(parts, "Retention");
    this.about = element("p", parent);
    this.form = element("form", parent, {className: "fields"});
    this.inputs = Object.fromEntries(FIELDS.map(([name, label, type]) => [name, field(this.form, label, {type, min: 0, name})]));
    this.form.oninput = () => this.preview(Object.fromEntries(FIELDS.map(([name]) => [name, this.inputs[name].value])));
    this.form.onsubmit = (event) => event.preventDefault();
    this.output = element("div", parent, {}, {"aria-live": "polite"});
    this.newest = new Newest(TYPING_MS);
    this.preview({});
  }

  async preview(values) {
    try {
      const answer = await this.newest.of((signal) => ask("retention", {...this.view.names, ...values}, signal));
      if (answer) this.show(answer, !Object.keys(values).length);
    } catch (error) { showError(this.output, error); }
  }

  show(answer, isFirst) {
    if (isFirst) {
      for (const [name] of FIELDS) this.inputs[name].value = answer.policy[name];
      this.about.textContent = answer.has_policy
        ? `Last run: ${answer.last_run || "none yet"}. Next run: ${answer.next_run || "with the next snapshot"}.` +
          (answer.failure ? ` The last run failed: ${answer.failure}` : "")
        : "This bucket has no policy: nothing expires. Below is what the default policy, or another one, would do.";
    }
    const {output} = this;
    output.replaceChildren();
    element("p", output, {className: "answer", textContent: (answer.is_changed ? "With these values: " : "Now: ") + answer.sentence});
    if (answer.leaving.length) element("p", output, {textContent: `Also removed: ${answer.leaving.join(", ")}.`});
    if (mayAct(this.view.plane) && answer.expired.length && !answer.is_changed) this.drawButton(answer);
    if (!answer.snapshots.length) return;
    tableOnDemand(output, "Each snapshot, and why it stays", "Preview of retention",
      [["snapshot", "text"], ["created"], ["outcome", "text"], ["why", "sentence"]],
      () => answer.snapshots.map((one) => [one.name, one.created, one.outcome, one.why]));
  }

  drawButton({expired, freed_bytes: freed, sentence}) {
    const button = element("button", this.output, {type: "button", className: "act", textContent: "Run retention now …"});
    button.onclick = () => act(this.view, {
      title: "Run retention now?", sentences: [sentence, `It frees ${bytesInWords(freed)}.`, expired.join(", ")],
      verb: `Expire, and free ${bytesInWords(freed)}`, path: "run-retention",
      body: {...this.view.names, names: expired, confirmed_bytes: freed},
    });
  }
}

export class CollectionPart {
  constructor(view, parts, {amounts}) {
    if (!mayAct(view.plane)) return;
    const parent = section(parts, "Collection");
    const pending = amounts.find((one) => one.state === "pending").bytes;
    element("p", parent, {textContent: `Held by no snapshot, and not claimed: ${bytesInWords(pending)}.`});
    const tools = element("div", parent, {className: "tools"});
    const tool = (textContent, state, sentence) => {
      element("button", tools, {type: "button", className: "act", textContent: `${textContent} …`}).onclick = () => act(view, {
        title: `${textContent} of ${view.names.volume}/${view.names.bucket}?`, sentences: [sentence], verb: textContent,
        path: "collection", body: {...view.names, state, reason: "from the page"},
      });
    };
    tool("Pause collection", "PAUSED", `No further rows are claimed: ${bytesInWords(pending)} and all later deletions wait.`);
    tool("Resume collection", "RUNNING", `Rows that waited are judged again: up to ${bytesInWords(pending)} may be freed.`);
  }
}
