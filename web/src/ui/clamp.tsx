import { type ReactElement, type ReactNode, useLayoutEffect, useRef, useState } from "react";

type Props = {
  /** The most that is shown at first, in pixels. */
  readonly height?: number;
  readonly what?: string;
  readonly children: ReactNode;
};

/** Shows the beginning of something tall, and all of it when asked. */
export function Clamp({ height = 320, what = "all", children }: Props): ReactElement {
  const body = useRef<HTMLDivElement>(null);
  const [tall, setTall] = useState(false);
  const [open, setOpen] = useState(false);
  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return;
    const look = () => setTall(element.scrollHeight > height + 60);
    const observer = new ResizeObserver(look);
    for (const child of element.children) observer.observe(child);
    look();
    return () => observer.disconnect();
  }, [height]);
  const closed = tall && !open;
  return (
    <div className={`clamp ${closed ? "closed" : ""}`}>
      <div ref={body} className="clamp-body" style={closed ? { maxHeight: height } : undefined}>
        {children}
      </div>
      {tall && (
        <div className="clamp-foot">
          <button type="button" className="button quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Show less" : `Show ${what}`}
          </button>
        </div>
      )}
    </div>
  );
}
