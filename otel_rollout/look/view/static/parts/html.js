import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

/**
 * Make Preact nodes of a template. Values become text nodes and properties, never markup.
 *
 * @type {(strings: TemplateStringsArray, ...values: unknown[]) => import("../vendor/preact.js").VNode<any>}
 */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)));
