/** A study as a scanner gives it, hundreds of DICOM files, packed into one ZIP that the server takes in. Nothing is
 * compressed, so the files themselves are sent, never copied; names are numbers, since folders often name patients. */

const PREAMBLE = 128;
const FIRST_BYTES = PREAMBLE + 4;

/** Whether a file is DICOM by its own mark; the few without it are found by their ending. */
export async function isDicom(file: File): Promise<boolean> {
  if (/\.(dcm|ima)$/i.test(file.name)) return true;
  const bytes = new Uint8Array(await file.slice(0, FIRST_BYTES).arrayBuffer());
  return new TextDecoder("latin1").decode(bytes.slice(PREAMBLE)) === "DICM";
}

/** All files in one archive. */
export async function zipped(files: readonly File[], name: string): Promise<File> {
  const parts: BlobPart[] = [];
  const directory: BlobPart[] = [];
  let offset = 0;
  let directorySize = 0;
  for (const [place, file] of files.entries()) {
    const title = new TextEncoder().encode(`${String(place + 1).padStart(5, "0")}.dcm`);
    const fields = [
      ...[...u16(20), ...u16(0), ...u16(0), ...u16(0), ...u16(DATE)],
      ...[...u32(await checksum(file)), ...u32(file.size), ...u32(file.size), ...u16(title.length), ...u16(0)],
    ];
    const local = new Uint8Array([...u32(0x04034b50), ...fields, ...title]);
    const central = new Uint8Array([
      ...[...u32(0x02014b50), ...u16(20), ...fields, ...u16(0), ...u16(0), ...u16(0), ...u32(0), ...u32(offset)],
      ...title,
    ]);
    parts.push(local, file);
    directory.push(central);
    offset += local.length + file.size;
    directorySize += central.length;
  }
  const count = u16(files.length);
  const end = [...u32(0x06054b50), ...u16(0), ...u16(0), ...count, ...count, ...u32(directorySize), ...u32(offset), ...u16(0)];
  return new File([...parts, ...directory, new Uint8Array(end)], name, { type: "application/zip" });
}

/** 1 January 1980, the first day that the format knows. */
const DATE = 0x21;
const u16 = (value: number): number[] => [value & 255, (value >>> 8) & 255];
const u32 = (value: number): number[] => [...u16(value & 65_535), ...u16(value >>> 16)];

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

/** CRC-32, as ZIP wants it. */
async function checksum(file: File): Promise<number> {
  let value = 0xffffffff;
  for (const byte of new Uint8Array(await file.arrayBuffer())) value = (value >>> 8) ^ TABLE[(value ^ byte) & 255]!;
  return (value ^ 0xffffffff) >>> 0;
}
