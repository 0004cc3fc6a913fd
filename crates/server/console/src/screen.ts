// The text of a serial console: lines with carriage return, backspace, and the erasing of lines.
// Other control sequences are skipped.
const LINES = 1000;

export class Screen {
  private lines: string[] = [""];
  private column = 0;
  private pending = "";

  /** Adds output. A control sequence may be split between two calls. */
  write(data: string): void {
    let rest = this.pending + data;
    this.pending = "";
    while (rest) {
      // eslint-disable-next-line no-control-regex
      const sequence = /^\x1b(?:\[[0-9;?]*([A-Za-z])|\][^\x07]*\x07|[^[\]])/.exec(rest);
      if (sequence) {
        if (sequence[1]) this.control(sequence[0], sequence[1]);
        rest = rest.slice(sequence[0].length);
      } else if (rest.startsWith("\x1b")) {
        if (rest.length < 100) { this.pending = rest; return; }
        rest = rest.slice(1);
      } else {
        const next = rest.search(/[\x00-\x1f]/);
        const length = next === 0 ? 1 : next < 0 ? rest.length : next;
        this.put(rest.slice(0, length));
        rest = rest.slice(length);
      }
    }
  }

  text(): string { return this.lines.join("\n"); }

  private get line(): string { return this.lines[this.lines.length - 1] ?? ""; }
  private set line(text: string) { this.lines[this.lines.length - 1] = text; }

  private put(text: string): void {
    if (text === "\n") { this.lines.push(""); this.column = 0; if (this.lines.length > LINES) this.lines.shift(); }
    else if (text === "\r") this.column = 0;
    else if (text === "\b") this.column = Math.max(0, this.column - 1);
    else if (text === "\t") this.put(" ".repeat(8 - (this.column % 8)));
    else if (text >= " ") {
      this.line = this.line.padEnd(this.column).slice(0, this.column) + text + this.line.slice(this.column + text.length);
      this.column += text.length;
    }
  }

  private control(sequence: string, kind: string): void {
    const number = Number(/\d+/.exec(sequence)?.[0] ?? 0);
    if (kind === "K" && number === 0) this.line = this.line.slice(0, this.column);
    else if (kind === "K") this.line = "";
    else if (kind === "D") this.column = Math.max(0, this.column - Math.max(number, 1));
    else if (kind === "C") this.column += Math.max(number, 1);
    else if (kind === "J" && number === 2) { this.lines = [""]; this.column = 0; }
  }
}
