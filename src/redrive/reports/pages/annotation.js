"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("[data-label]")];
const main = byId("item");
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

function say(text, tone) {
  byId("status").textContent = text;
  byId("status").className = tone ?? "new";
}

function sayLabel() {
  say(labels[place] ? `your label: ${labels[place].label}` : "no label yet", "");
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

function closer(command) {
  const span = document.createElement("span");
  const code = document.createElement("code");
  code.textContent = command;
  span.append("look closer: ", code);
  span.hidden = !command;
  return span;
}

function show(at) {
  place = at;
  const item = data.items[at];
  for (const name of ["task", "asked", "inferred", "state", "context", "action", "reason"]) {
    fill(name, item[name]);
  }
  fill("stateless", item.state ? "" : item.no_state);
  byId("state-part").open = false;
  list("before", item.before);
  list("notes", item.notes);
  byId("facts").replaceChildren(...item.facts.map((fact) => {
    const span = document.createElement("span");
    span.textContent = fact;
    return span;
  }), closer(item.closer));
  note.value = drafts[at] ?? (labels[at] ? labels[at].note : "");
  byId("place").textContent = `Fire ${at + 1} of ${labels.length}`;
  sayLabel();
  refresh();
  // The event and the question stand at the end; what came before them is above.
  byId("context").scrollTop = 0;
  main.scrollTop = main.scrollHeight;
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
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
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === labels.length - 1;
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
    sayLabel();
  } catch (error) {
    say(`Not stored: ${error.message}. Is redrive still running? Stored labels are safe.`, "bad");
    return false;
  } finally {
    refresh();
  }
  return true;
}

async function choose(label) {
  const at = place;
  if (isOver || !(await keep(label))) return;
  const stays = place === at;
  const open = findOpen(at + 1);
  if (stays && open >= 0) show(open);
  const back = place === at + 1 ? " — ← to change it" : "";
  const where = back || place === at ? "" : ` for fire ${at + 1}`;
  const end = open >= 0 ? "" : ". All are labelled: go back to change one, or finish";
  say(`stored: ${label}${where}${back}${end}`);
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
    if (!said && text) say("The note is stored with your label.");
    if (!said || said.note === text) return;
    if (await send(at, { label: said.label, note: text })) say("Note stored.");
  });
  return sending;
}

async function finish() {
  if (isOver) return;
  await keepNote();
  try {
    await post("/finish", {});
    isOver = true;
    say(`Stored. redrive has ended; close this window. Next: ${data.next}`);
  } catch (error) {
    say(`redrive does not answer: ${error.message}. Stored labels are safe.`, "bad");
  }
  refresh();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target === note) {
    if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) {
      event.preventDefault();
      note.blur();
      main.focus({ preventScroll: true });
    }
    return;
  }
  const act = {
    t: () => choose("true"),
    f: () => choose("false"),
    u: () => choose("unsure"),
    n: () => note.focus({ preventScroll: true }),
    o: () => { byId("state-part").open = !byId("state-part").open; },
    q: () => finish(),
    b: () => move(-1),
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
byId("ask").textContent = data.question;
byId("criterion").textContent = data.criterion;
show(place);
