// Bundles the page's sources and uPlot into `built`, with uPlot's licence, which a minifier would drop.
import { cpSync, readFileSync, rmSync } from "node:fs";
import { build } from "esbuild";

const { version } = JSON.parse(readFileSync("node_modules/uplot/package.json", "utf8"));
const licence = `/*! uPlot ${version}\n\n${readFileSync("node_modules/uplot/LICENSE", "utf8").trim()}\n*/`;

rmSync("built", { force: true, recursive: true });
await build({
  entryPoints: ["source/page.js"],
  outdir: "built",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  banner: { js: licence, css: licence },
});
cpSync("source/index.html", "built/index.html");
