// Acts: each asks once more in a dialog that names the bytes, and says afterwards what was done.
import {hasActsToken, post} from "./api.js";
import {bytesText, element} from "./elements.js";

export function mayAct(plane) { return Boolean(plane.may_act) && hasActsToken(); }

export function bytesInWords(bytes) {
  const exact = BigInt(bytes).toLocaleString("en");
  return BigInt(bytes) < 1024n ? `${exact} bytes` : `${bytesText(bytes)} (${exact} bytes)`;
}

export function say(text) { document.getElementById("said").textContent = text; }

// Shows a sentence where an act or a question has failed.
export function showError(parent, error) {
  parent.replaceChildren();
  element("p", parent, {className: "note", textContent: error.message}, {role: "alert"});
}

// Returns whether the reader wants it. "Cancel" has the focus, so that a careless Enter does nothing.
function confirmed(title, sentences, verb) {
  const dialog = element("dialog", document.body, {}, {"aria-labelledby": "asked"});
  const form = element("form", dialog, {method: "dialog"});
  element("h2", form, {textContent: title, id: "asked"});
  for (const textContent of sentences) element("p", form, {textContent});
  const tools = element("div", form, {className: "tools"});
  element("button", tools, {type: "submit", value: "", textContent: "Cancel", autofocus: true});
  element("button", tools, {type: "submit", value: "yes", textContent: verb, className: "act"});
  return new Promise((answer) => {
    dialog.addEventListener("close", () => { dialog.remove(); answer(dialog.returnValue === "yes"); });
    dialog.showModal();
  });
}

// Asks, acts and shows what came of it; "done" is called after an act that was carried out.
export async function act(outcome, {title, sentences, verb, path, body, done}) {
  if (!await confirmed(title, sentences, verb)) return;
  try {
    const answer = await post(`acts/${path}`, body);
    outcome.replaceChildren();
    for (const textContent of [answer.message, ...answer.refused])
      element("p", outcome, {textContent, className: "note"});
    say([answer.message, ...answer.refused].join(" "));
    await done();
  } catch (error) {
    showError(outcome, error);
  }
}
