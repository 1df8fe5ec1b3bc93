export * from "diff/libesm/diff/base.js";
export { default } from "diff/libesm/diff/base.js";
