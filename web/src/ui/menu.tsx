import { type ReactElement, type ReactNode, useId, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { IconButton } from "./icon-button.tsx";

/** One entry of a menu. */
type MenuItem = {
  readonly label: string;
  readonly icon: ReactNode;
  readonly danger?: boolean;
  readonly disabled?: boolean;
  readonly onSelect: () => void;
};

type Props = {
  readonly label: string;
  readonly icon: ReactNode;
  readonly items: readonly MenuItem[];
  readonly small?: boolean;
};

/** A button that opens a menu. The browser's popover closes it on Escape and on a click elsewhere. */
export function Menu({ label, icon, items, small }: Props): ReactElement {
  const id = useId();
  const button = useRef<HTMLSpanElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);

  function placed(event: { newState: string }): void {
    const isOpen = event.newState === "open";
    // What is in it has to be there to be measured, and to take the focus.
    flushSync(() => setOpen(isOpen));
    if (!isOpen || !menu.current || !button.current) return;
    const at = button.current.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu.current;
    const below = at.bottom + height + 8 < window.innerHeight;
    menu.current.style.left = `${Math.max(8, Math.min(at.right - width, window.innerWidth - width - 8))}px`;
    menu.current.style.top = `${below ? at.bottom + 4 : at.top - height - 4}px`;
    menu.current.querySelector<HTMLElement>("[role=menuitem]")?.focus();
  }

  function move(event: React.KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const entries = [
      ...(menu.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? []),
    ];
    if (step) {
      event.preventDefault();
      const at = entries.indexOf(document.activeElement as HTMLElement);
      entries[(at + step + entries.length) % entries.length]?.focus();
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      entries.at(event.key === "Home" ? 0 : -1)?.focus();
    } else if (event.key === "Tab") {
      menu.current?.hidePopover();
    }
  }

  return (
    <>
      <span ref={button} className="menu-anchor">
        <IconButton
          label={label}
          small={small ?? false}
          aria-haspopup="menu"
          aria-expanded={open}
          {...{ popoverTarget: id }}
          onClick={(event) => event.stopPropagation()}
        >
          {icon}
        </IconButton>
      </span>
      <div
        ref={menu}
        id={id}
        popover="auto"
        role="menu"
        tabIndex={-1}
        className="menu"
        onToggle={placed}
        onKeyDown={move}
      >
        {open &&
          items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              disabled={item.disabled}
              className={`menu-item ${item.danger ? "danger" : ""}`}
              onClick={() => {
                menu.current?.hidePopover();
                item.onSelect();
              }}
            >
              {item.icon}
              {item.label}
            </button>
          ))}
      </div>
    </>
  );
}
