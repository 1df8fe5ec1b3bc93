import { useEffect, useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

const NAME = "otel-rollout.theme";
const CHOICES = /** @type {const} */ (["system", "light", "dark"]);

/** @type {Set<() => void>} */
const listeners = new Set();

/** A button that goes through the colors: as the system has them, light, dark. */
export function ThemeSwitch() {
  const [choice, setChoice] = useState(stored());
  const next = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
  const change = () => {
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem(NAME, next);
    } catch {
      // Then it holds for this page.
    }
    setChoice(next);
    for (const listener of [...listeners]) listener();
  };
  const label = `Colors: ${choice}. Change to ${next}.`;
  const icon = { system: "◐", light: "○", dark: "●" }[choice];
  return html`<button
    type="button"
    class="icon-button"
    title=${label}
    aria-label=${label}
    onClick=${change}
  >
    ${icon}
  </button>`;
}

/**
 * Return a number that changes with the colors, for what draws on a canvas.
 *
 * @returns {number}
 */
export function useThemeVersion() {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const change = () => setVersion((old) => old + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    listeners.add(change);
    system.addEventListener("change", change);
    return () => {
      listeners.delete(change);
      system.removeEventListener("change", change);
    };
  }, []);
  return version;
}

/**
 * Return a color of style/colors.css, as it is now.
 *
 * @param {string} name without `--`
 */
export function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** @returns {(typeof CHOICES)[number]} */
function stored() {
  const theme = document.documentElement.dataset.theme;
  return theme === "light" || theme === "dark" ? theme : "system";
}
