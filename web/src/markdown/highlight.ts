import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import { common, createLowlight } from "lowlight";
import type { ReactElement } from "react";
import { Fragment, jsx, jsxs } from "react/jsx-runtime";

const lowlight = createLowlight(common);

/** Code in colours, as elements: no HTML is made on the way. Undefined for a language that is not known. */
export function highlight(code: string, language: string): ReactElement | undefined {
  if (!lowlight.registered(language)) return undefined;
  return toJsxRuntime(lowlight.highlight(language, code), { Fragment, jsx, jsxs });
}
