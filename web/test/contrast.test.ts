import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

// Every colour of text can stand on every ground, also one that is hovered over or
// pressed: WCAG 2.2, 1.4.3, a ratio of 4.5.

type Colour = [red: number, green: number, blue: number, alpha: number];

const css = readFileSync(new URL("../src/styles/tokens.css", import.meta.url), "utf8");

const short = /^#(.)(.)(.)$/;
const long = /^#(..)(..)(..)$/;
const layered = /^rgb\((\d+) (\d+) (\d+) \/ (\d+)%\)$/;

const colour = (text: string): Colour => {
  const hex = long.exec(text.replace(short, "#$1$1$2$2$3$3"));
  if (hex) {
    const [red = 0, green = 0, blue = 0] = hex.slice(1).map((digits) => Number.parseInt(digits, 16));
    return [red, green, blue, 1];
  }
  const rgb = layered.exec(text);
  if (!rgb) throw new Error(`no colour: ${text}`);
  return [Number(rgb[1]), Number(rgb[2]), Number(rgb[3]), Number(rgb[4]) / 100];
};

const over = (top: Colour, ground: Colour): Colour => {
  const mix = (i: 0 | 1 | 2) => top[i] * top[3] + ground[i] * (1 - top[3]);
  return [mix(0), mix(1), mix(2), 1];
};

const luminance = ([red, green, blue]: Colour): number => {
  const linear = (value: number) =>
    value <= 10.31475 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
};

const contrast = (one: Colour, other: Colour): number => {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (light + 0.05) / (dark + 0.05);
};

for (const theme of ["light", "dark"]) {
  const rule = css.slice(css.indexOf(theme === "light" ? "--bg:" : ':root[data-theme="dark"]'));
  const token = (name: string) => {
    const found = new RegExp(`--${name}: ([^;]+);`).exec(rule)?.[1];
    if (!found) throw new Error(`no --${name}`);
    return colour(found);
  };
  test(`text is readable on every ground: ${theme}`, () => {
    for (const text of ["text", "text-soft", "text-faint"]) {
      for (const ground of ["bg", "bg-side", "bg-raised", "bg-soft"]) {
        for (const layer of ["", "bg-hover", "bg-press"]) {
          const below = layer ? over(token(layer), token(ground)) : token(ground);
          expect(contrast(token(text), below), `${text} on ${ground} ${layer}`).toBeGreaterThanOrEqual(4.5);
        }
      }
    }
    for (const [text, ground] of [
      ["text-faint", "bg-bubble"],
      ["warn", "warn-soft"],
      ["bad", "bad-soft"],
      ["accent", "accent-soft"],
      ["on-accent", "accent"],
    ] as const) {
      expect(contrast(token(text), token(ground)), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  });
}
