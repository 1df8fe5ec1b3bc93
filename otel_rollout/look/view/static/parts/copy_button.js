import { useEffect, useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** Milliseconds for which a button says that it has copied. */
const SAID_FOR = 1500;

/**
 * A button that copies a text.
 *
 * @param {{text: string | (() => string | Promise<string>), children: unknown, title?: string}} props
 */
export function CopyButton({ text, children, title }) {
  const [said, say] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => say(""), SAID_FOR);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      await writeToClipboard(typeof text === "string" ? text : await text());
      say("Copied");
    } catch {
      say("Can't copy here");
    }
  };
  return html`<button type="button" class="copy" title=${title} onClick=${copy}>
    <span aria-live="polite">${said || children}</span>
  </button>`;
}

/**
 * Browsers have no clipboard for pages of another machine without https; a selected text can still be copied.
 *
 * @param {string} text
 */
async function writeToClipboard(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden-label";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser doesn't copy");
}
