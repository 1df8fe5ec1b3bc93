import { decimal, visible } from "../data/formats.js";
import { useEffect, useRef, useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** @import { Filter } from "../data/rollouts.js" */

/** Milliseconds without a key before what is typed is looked for. */
const PAUSE = 200;

/**
 * The filter of a step's groups or trajectories.
 *
 * @param {object} props
 * @param {Filter} props.filter
 * @param {(changes: Filter) => void} props.onChange
 * @param {() => void} props.onClear
 * @param {boolean} props.isOfGroups
 * @param {string[]} props.fates those of the step
 * @param {number} props.shown
 * @param {number} props.all
 */
export function FilterBar({ filter, onChange, onClear, isOfGroups, fates, shown, all }) {
  const isRange = !!(filter.from || filter.to);
  const range =
    filter.from === filter.to
      ? decimal(Number(filter.from))
      : `${decimal(Number(filter.from))} to ${decimal(Number(filter.to))}`;
  return html`<form
    class="filters"
    role="search"
    aria-label="filter"
    onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}
  >
    <${TextFilter}
      value=${filter.q ?? ""}
      onChange=${(/** @type {string} */ q) => onChange({ q })}
    />
    ${
      isOfGroups
        ? choice("Signal", filter.signal, (signal) => onChange({ signal }), [
            ["", "any signal"],
            ["some", "with signal"],
            ["none", "without signal"],
            ["best", "all best"],
            ["worst", "all worst"],
            ["other", "all equal"],
          ])
        : null
    }
    ${choice("Status", filter.status, (status) => onChange({ status }), [
      ["", "any status"],
      ["completed", "completed"],
      ["truncated", "truncated"],
      ["error", "error"],
      ["cancelled", "cancelled"],
      ["open", "no end yet"],
    ])}
    ${
      isRange
        ? html`<button
            type="button"
            title="Any reward"
            onClick=${() => onChange({ from: "", to: "" })}
          >
            reward ${range} ✕
          </button>`
        : choice("Reward", filter.reward, (reward) => onChange({ reward }), [
            ["", "any reward"],
            ["known", "with a reward"],
            ["none", "without reward"],
            ["best", "the step's best"],
            ["worst", "the step's worst"],
          ])
    }
    ${choice("Tools", filter.tools, (tools) => onChange({ tools }), [
      ["", "any tools"],
      ["errors", "a tool failed"],
    ])}
    ${
      fates.length
        ? choice("Fate", filter.fate, (fate) => onChange({ fate }), [
            ["", "any fate"],
            ...fates.map((fate) => /** @type {[string, string]} */ ([fate, visible(fate)])),
          ])
        : null
    }
    <span class="weak" role="status"
      >${shown === all ? `${all}` : `${shown} of ${all}`}</span
    >
    ${Object.values(filter).some(Boolean) ? html`<button type="button" class="quiet" onClick=${onClear}>Clear</button>` : null}
  </form>`;
}

/**
 * @param {string} label
 * @param {string | undefined} value
 * @param {(value: string) => void} onChange
 * @param {[string, string][]} options
 */
function choice(label, value, onChange, options) {
  return html`<select
    aria-label=${label}
    class=${value ? "is-set" : ""}
    value=${value ?? ""}
    onChange=${(/** @type {any} */ event) => onChange(event.target.value)}
  >
    ${options.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}
  </select>`;
}

/** @param {{value: string, onChange: (value: string) => void}} props */
function TextFilter({ value, onChange }) {
  const [text, setText] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value === sent.current) return;
    sent.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      onChange(text);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<input
    type="search"
    aria-label="text in the prompt or the answer"
    placeholder="text in prompt or answer"
    value=${text}
    onInput=${(/** @type {any} */ event) => setText(event.target.value)}
  />`;
}
