// Charts over time. Screen readers get the text above the chart.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";

export interface Series { name: string; color: "--accent" | "--second"; values: (number | null)[] }

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Steps between the lines of a chart of bytes. */
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** `least` is the smallest value at the top of the chart; `binary` is for bytes. */
export function Chart({ title, times, series, least, binary, format }: { title: string; times: number[]; series: Series[]; least: number; binary?: boolean; format: (value: number | null) => string }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const axis = { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    plot.current = new uPlot({
      width: element.clientWidth, height: 150, legend: { show: false }, cursor: { show: false },
      scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1 || 0, least)] } },
      axes: [{ ...axis, space: 70, size: 26, values: (_, values) => values.map((value) => new Date(value * 1000).toISOString().slice(11, 19)) },
        { ...axis, size: 70, ...(binary ? { incrs: POWERS_OF_TWO } : {}), values: (_, values) => values.map((value) => (value === 0 ? "0" : format(value))) }],
      series: [{}, ...series.map((one) => ({ label: one.name, stroke: () => color(one.color), width: 2, points: { show: false }, spanGaps: true }))],
    }, [times, ...series.map((one) => one.values)], element);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: 150 }));
    observer.observe(element);
    return () => { observer.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, []);
  useEffect(() => { plot.current?.setData([times, ...series.map((one) => one.values)]); }, [times]);
  return (
    <figure class="chart">
      <figcaption>{title}: {series.map((one) => (
        <span key={one.name} class={`key ${one.color.slice(2)}`}>{one.name} {format(one.values.at(-1) ?? null)}</span>))}</figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}
