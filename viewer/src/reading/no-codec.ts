/** Stands in for the codecs of Zarr, which NiiVue could read and we never do: a megabyte less to ship. */

export default class NoCodec {
  static fromConfig(): never {
    throw new Error("Zarr volumes are not supported.");
  }
}
