import type { AnchorHTMLAttributes, ReactElement } from "react";
import { hrefOf, navigate, type Route } from "../lib/route.ts";

type Props = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & { readonly to: Route };

/** A link inside the page. With a modifier it is a link like any other. */
export function Link({ to, onClick, children, ...rest }: Props): ReactElement {
  return (
    <a
      {...rest}
      href={hrefOf(to)}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0) return;
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        navigate(to);
      }}
    >
      {children}
    </a>
  );
}
