// The keys of the work page: each works in the innermost scope that has the focus, never behind a
// dialog.
import { $, find, findAt, getTarget } from "./dom.js";

const READ_MS = 500; // a question takes keys so long after it became their target
const LEAVING_KEYS = /^(Tab|Backspace|Home|End|Arrow.*)$/;
const ANSWER_KEYS = { y: "once", o: "network", s: "session", a: "always", e: "edit", n: "deny" };

export function listenToKeys({ send, prompt, panes, createSession, showKeys, moveFocus }) {
  /** @type {Element | null} */
  let target = null; // the question that has the focus
  let targetSince = 0;
  let marked = ""; // the character that marked an answer
  document.addEventListener("focusin", (event) => {
    const card = findAt(event, ".ask");
    if (card !== target) {
      targetSince = performance.now();
      marked = "";
    }
    target = card;
  });
  document.addEventListener("focusout", (event) => {
    if (!event.relatedTarget) target = null;
  });

  // A key marks an answer, Enter takes it, as on any button. What is typed before the question can
  // have been read belongs to the prompt, and so do two characters: they are the beginning of a word.
  function pressInQuestion(card, event) {
    if (event.key.length !== 1) {
      if (LEAVING_KEYS.test(event.key)) marked = "";
      return false;
    }
    if (event.key === " " && !marked && findAt(event, "button, a, summary")) return false;
    event.preventDefault();
    const kind = ANSWER_KEYS[event.key.toLowerCase()];
    const button = kind && find(`[data-answer="${kind}"]`, card);
    const isRead = performance.now() - targetSince > READ_MS && !document.hidden;
    if (!marked && isRead && button && !button.disabled) {
      button.focus();
      marked = event.key;
    } else {
      prompt.type(marked + event.key);
      marked = "";
    }
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if ($("dialog").open && !findAt(event, "dialog .ask")) return;
    const field = findAt(event, "input, textarea, select");
    if (event.key === "Escape") {
      if ($("dialog").open) return;
      if (findAt(event, "#pane")) return panes.close();
      if (field && field !== prompt.field) return field.blur();
      return send({ do: "interrupt" });
    }
    if (event.key === "Tab" && event.shiftKey && getTarget(event) === prompt.field) {
      event.preventDefault();
      return send({ do: "command", line: "/mode" });
    }
    if (field) return;
    const card = findAt(event, ".ask");
    if (card && pressInQuestion(card, event)) return;
    if ($("dialog").open) return;
    const keys = {
      "/": () => $("search").focus(),
      n: createSession,
      j: () => moveFocus(1),
      k: () => moveFocus(-1),
      "[": () => document.body.classList.toggle("no-rail"),
      "]": () => document.body.classList.toggle("no-side"),
      "?": showKeys,
    };
    const run = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (run) {
      event.preventDefault();
      run();
    } else if (event.key.length === 1) {
      prompt.field.focus();
    }
  });
}
