import type { Json } from "@holdfast/client";
import { type ReactElement, useMemo } from "react";
import { prettyJson } from "../lib/words.ts";
import { LongText } from "./long-text.tsx";

type Props = { readonly value: Json | undefined; readonly height?: number };

/** A JSON value, indented. */
export function JsonView({ value, height }: Props): ReactElement {
  const text = useMemo(() => prettyJson(value), [value]);
  return <LongText text={text} className="json" {...(height && { height })} />;
}
