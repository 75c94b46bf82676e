"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("[data-label]")];
const note = byId("note");
const labels = data.labels;
const drafts = {};
let place = Math.max(0, findOpen(0));
let sending = Promise.resolve();
let isOver = false;

function findOpen(start) {
  for (let step = 0; step < labels.length; step += 1) {
    const at = (start + step) % labels.length;
    if (!labels[at]) return at;
  }
  return -1;
}

function say(text, isBad) {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", Boolean(isBad));
}

function fill(id, text) {
  byId(id).textContent = text;
  const part = byId(id + "-part");
  if (part) part.hidden = !text;
}

function list(id, texts) {
  byId(id).replaceChildren(...texts.map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
  byId(id + "-part").hidden = !texts.length;
}

function show(at) {
  place = at;
  const item = data.items[at];
  fill("action", item.action);
  fill("reason", item.reason);
  fill("context", item.context);
  fill("state", item.state);
  fill("inferred", item.inferred);
  list("before", item.before);
  list("notes", item.notes);
  byId("facts").replaceChildren(...item.facts.map((fact) => {
    const span = document.createElement("span");
    span.textContent = fact;
    return span;
  }));
  note.value = drafts[at] ?? (labels[at] ? labels[at].note : "");
  byId("place").textContent = `Fire ${at + 1} of ${labels.length}`;
  window.scrollTo(0, 0);
  refresh();
}

function refresh() {
  const done = labels.filter(Boolean).length;
  const said = labels[place] ? labels[place].label : "";
  for (const button of buttons) {
    button.setAttribute("aria-pressed", String(button.dataset.label === said));
    button.disabled = isOver;
  }
  byId("progress").max = labels.length;
  byId("progress").value = done;
  byId("count").textContent = `${done} labelled`;
  byId("open").disabled = isOver || done === labels.length;
  byId("finish").classList.toggle("ready", done === labels.length);
  byId("finish").disabled = isOver;
}

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    credentials: "omit",
    redirect: "error",
    headers: { "content-type": "application/json", "x-redrive-token": data.token },
    body: JSON.stringify(body),
  });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
}

// One label after the other, each with the note as it was when it was given.
function keep(label) {
  const at = place;
  const entry = { label, note: note.value.trim() };
  sending = sending.then(() => send(at, entry));
  return sending;
}

async function send(at, entry) {
  try {
    await post("/labels", { item: at, ...entry });
    labels[at] = entry;
    if (drafts[at] && drafts[at].trim() === entry.note) delete drafts[at];
    say("");
  } catch (error) {
    say(`Not stored: ${error.message}. Is redrive still running? Stored labels are safe.`, true);
    return false;
  } finally {
    refresh();
  }
  return true;
}

async function choose(label) {
  const at = place;
  if (isOver || !(await keep(label)) || place !== at) return;
  const open = findOpen(at + 1);
  if (open >= 0) show(open);
  else say("All are labelled. Go back to change one, or finish.");
}

function move(step) {
  const at = place + step;
  if (at >= 0 && at < labels.length) show(at);
}

function keepNote() {
  const at = place;
  const text = note.value.trim();
  sending = sending.then(async () => {
    const said = labels[at];
    if (isOver) return;
    if (!said && text) say("The note is stored with the label.");
    if (!said || said.note === text) return;
    if (await send(at, { label: said.label, note: text })) say("Note stored.");
  });
  return sending;
}

async function finish() {
  await keepNote();
  try {
    await post("/finish", {});
    isOver = true;
    say("Stored. redrive has ended; this window can be closed.");
  } catch (error) {
    say(`redrive does not answer: ${error.message}. Stored labels are safe.`, true);
  }
  refresh();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target === note) {
    if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) {
      event.preventDefault();
      note.blur();
    }
    return;
  }
  const act = {
    t: () => choose("true"),
    f: () => choose("false"),
    u: () => choose("unsure"),
    n: () => note.focus(),
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
  }[event.key];
  if (act && !event.repeat) {
    event.preventDefault();
    act();
  }
});
note.addEventListener("input", () => { drafts[place] = note.value; });
note.addEventListener("change", keepNote);
for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.label));
byId("previous").addEventListener("click", () => move(-1));
byId("next").addEventListener("click", () => move(1));
byId("open").addEventListener("click", () => show(Math.max(0, findOpen(place + 1))));
byId("finish").addEventListener("click", finish);
byId("policy").textContent = data.policy;
byId("rater").textContent = data.rater;
show(place);
