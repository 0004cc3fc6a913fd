//! Charts as SVG, drawn by `charts-rs`: one version for light pages and one for dark pages.

use charts_rs::{
    AxisScale, BarChart, ChartBase, Color, HeatmapChart, HorizontalBarChart, LegendCategory, LineChart,
    Series, get_theme,
};

use super::{Chart, Kind, ReportError};

/// Width in pixels, for a wide page; narrow screens scroll.
const WIDTH: f32 = 960.0;
const HEIGHT: f32 = 360.0;
/// Height of a heat map row.
const ROW: f32 = 26.0;
/// Height of a horizontal bar, of the gap between groups, and of the legend and axis.
const BAR: f32 = 17.0;
const GAP: f32 = 14.0;
const MARGIN: f32 = 80.0;
const FONT: f32 = 12.0;
/// Maximum number of letters in labels that fit side by side below the axis.
const LETTERS: usize = 110;
/// A palette for readers with red-green colour blindness (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d1f", "#7f7f7f"];

/// Renders the chart for light or dark pages.
pub(super) fn svg(chart: &Chart, dark: bool) -> Result<String, ReportError> {
    let drawn = match chart.kind {
        Kind::Bars if letters(chart) > LETTERS => horizontal_bars(chart, dark).svg(),
        Kind::Bars => bars(chart, dark).svg(),
        Kind::Lines | Kind::LinesLog => lines(chart, dark).svg(),
        Kind::Heat => heat(chart, dark).svg(),
    };
    drawn.map_err(|source| ReportError::Chart { chart: chart.title.clone(), source })
}

fn theme(dark: bool) -> &'static str {
    if dark { charts_rs::THEME_DARK } else { charts_rs::THEME_LIGHT }
}

fn series(chart: &Chart) -> Vec<Series> {
    #[allow(clippy::cast_possible_truncation)]
    let values =
        |values: &[Option<f64>]| values.iter().map(|value| value.map(|value| value as f32)).collect();
    chart.series.iter().map(|(name, all)| Series::new_nullable(spaced(name), values(all))).collect()
}

/// Pads a label: the library measures text in a narrow font, and wider fonts would overlap.
fn spaced(name: &str) -> String {
    let missing = 3 + name.chars().count() / 5;
    format!("{name}{}", "\u{a0}".repeat(missing))
}

/// Sets the style shared by all charts.
fn apply_style(base: &mut ChartBase, dark: bool) {
    base.width = WIDTH;
    base.height = HEIGHT;
    base.background_color = Color::transparent();
    base.font_family = "system-ui, sans-serif".into();
    base.series.colors = COLOURS.map(Color::from).to_vec();
    base.legend.font.size = FONT;
    base.x_axis.font.size = FONT;
    // Room for the last label of the axis, which is centred on its tick.
    base.margin.right = FONT * 1.5;
    base.series.label.font.size = FONT;
    base.series.label.font.color = get_theme(theme(dark)).title.font.color;
    base.tooltip.show = true;
}

fn letters(chart: &Chart) -> usize {
    chart.labels.iter().map(|place| place.chars().count()).sum()
}

/// Shows the values next to the bars if there is room.
fn figures(base: &mut ChartBase, chart: &Chart, room: bool) {
    base.legend.category = LegendCategory::Rect;
    base.series_list.iter_mut().for_each(|series| series.label_show = room);
    let highest =
        chart.series.iter().flat_map(|(_, values)| values.iter().flatten()).copied().fold(0.0, f64::max);
    base.series.label.formatter = if highest < 100.0 { "{:.1}" } else { "{:.0}" }.into();
}

fn bars(chart: &Chart, dark: bool) -> BarChart {
    let mut drawn = BarChart::new_with_theme(series(chart), chart.labels.clone(), theme(dark));
    apply_style(&mut drawn.base, dark);
    drawn.y_axis_configs.iter_mut().for_each(|axis| axis.font.size = FONT);
    figures(&mut drawn.base, chart, chart.labels.len() * chart.series.len() <= 24);
    drawn
}

/// Draws horizontal bars, for long labels, with the first one at the top.
fn horizontal_bars(chart: &Chart, dark: bool) -> HorizontalBarChart {
    let mut turned = chart.clone();
    turned.labels = chart.labels.iter().rev().map(|place| spaced(place)).collect();
    turned.series.iter_mut().for_each(|(_, values)| values.reverse());
    let mut drawn = HorizontalBarChart::new_with_theme(series(&turned), turned.labels.clone(), theme(dark));
    apply_style(&mut drawn.base, dark);
    figures(&mut drawn.base, chart, true);
    drawn.y_axis_configs.iter_mut().for_each(|axis| axis.font.size = FONT);
    #[allow(clippy::cast_precision_loss)]
    let bars = (chart.labels.len() * chart.series.len()) as f32;
    #[allow(clippy::cast_precision_loss)]
    let gaps = chart.labels.len() as f32;
    drawn.base.height = bars * BAR + gaps * GAP + MARGIN;
    drawn
}

fn lines(chart: &Chart, dark: bool) -> LineChart {
    let mut drawn = LineChart::new_with_theme(series(chart), chart.labels.clone(), theme(dark));
    apply_style(&mut drawn.base, dark);
    let log = chart.kind == Kind::LinesLog;
    for axis in &mut drawn.y_axis_configs {
        axis.font.size = FONT;
        axis.scale = if log { AxisScale::Log(10.0) } else { AxisScale::Linear };
        axis.min = (!log).then_some(0.0);
        if log && let Some((low, high)) = decades(chart) {
            // One grid line per power of ten.
            axis.min = Some(10f32.powi(low));
            axis.max = Some(10f32.powi(high));
            axis.split_number = usize::try_from(high - low).unwrap_or(1);
        }
    }
    drawn
}

/// Returns the powers of ten that enclose all values.
fn decades(chart: &Chart) -> Option<(i32, i32)> {
    let values = chart.series.iter().flat_map(|(_, values)| values.iter().flatten());
    let logs: Vec<f64> = values.filter(|value| **value > 0.0).map(|value| value.log10()).collect();
    if logs.is_empty() {
        return None;
    }
    let low = logs.iter().copied().fold(f64::MAX, f64::min).floor();
    let high = logs.iter().copied().fold(f64::MIN, f64::max).ceil();
    #[allow(clippy::cast_possible_truncation)]
    let (low, high) = (low as i32, high as i32);
    Some((low, high.max(low + 1)))
}

fn heat(chart: &Chart, dark: bool) -> HeatmapChart {
    let mut cells = Vec::new();
    for (row, (_, values)) in chart.series.iter().rev().enumerate() {
        for (column, value) in values.iter().enumerate() {
            #[allow(clippy::cast_possible_truncation)]
            if let Some(value) = value {
                cells.push((row * chart.labels.len() + column, value.round() as f32));
            }
        }
    }
    let rows = chart.series.iter().rev().map(|(name, _)| spaced(name)).collect();
    let mut drawn = HeatmapChart::new_with_theme(cells, chart.labels.clone(), rows, theme(dark));
    apply_style(&mut drawn.base, dark);
    #[allow(clippy::cast_precision_loss)]
    let room = chart.series.len() as f32 * ROW;
    drawn.base.height += room - HEIGHT + 60.0;
    drawn.heatmap_series.min = 0.0;
    drawn.heatmap_series.max = 100.0;
    let (low, high) = if dark { ("#1d2733", "#56b4e9") } else { ("#eef4f9", "#0072b2") };
    drawn.heatmap_series.min_color = low.into();
    drawn.heatmap_series.max_color = high.into();
    let (on_low, on_high) = if dark { ("#e6e6e6", "#101418") } else { ("#222222", "#ffffff") };
    drawn.heatmap_series.min_font_color = on_low.into();
    drawn.heatmap_series.max_font_color = on_high.into();
    drawn
}
