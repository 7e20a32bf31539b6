/** Writes label maps as greyscale PNG files, bit for bit what was painted (a canvas may alter what it reads back). */

const SIGNATURE = [137, 80, 78, 71, 13, 10, 26, 10];

/** A PNG of one byte a pixel, as base64. */
export async function greyPng(pixels: Uint8Array, width: number, height: number): Promise<string> {
  const rows = new Uint8Array((width + 1) * height); // each row starts with 0: not filtered
  for (let y = 0; y < height; y++) rows.set(pixels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const header = new Uint8Array(13);
  const numbers = new DataView(header.buffer);
  numbers.setUint32(0, width);
  numbers.setUint32(4, height);
  header[8] = 8; // bits a pixel; 0 after it: greyscale, deflate, no interlacing
  const chunks = [chunk("IHDR", header), chunk("IDAT", await deflate(rows)), chunk("IEND", new Uint8Array())];
  return base64([Uint8Array.from(SIGNATURE), ...chunks]);
}

async function deflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function chunk(name: string, content: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(content.length + 12);
  const numbers = new DataView(bytes.buffer);
  numbers.setUint32(0, content.length);
  bytes.set(new TextEncoder().encode(name), 4);
  bytes.set(content, 8);
  numbers.setUint32(content.length + 8, crc32(bytes.subarray(4, content.length + 8)));
  return bytes;
}

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function base64(parts: Uint8Array[]): string {
  let text = "";
  for (const part of parts) for (const byte of part) text += String.fromCharCode(byte);
  return btoa(text);
}
