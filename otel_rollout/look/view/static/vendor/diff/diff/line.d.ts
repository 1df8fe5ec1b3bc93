export * from "diff/libesm/diff/line.js";
