//! The report of a run: one document as a self-contained HTML page and as Markdown, and its figures
//! as CSV and JSON.
//!
//! Invariants: all forms are rendered from the same document; the page loads no external resources
//! and runs no script.

mod charts;
mod content;
mod csv;
mod html;
mod markdown;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::analysis::{Analysis, analyse};
use crate::run::{Measured, RunPlan, SystemRecord};

/// The input of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The plan of the run.
    pub plan: RunPlan,
    /// The descriptions of the systems.
    pub systems: Vec<SystemRecord>,
    /// The analysis.
    pub analysis: Analysis,
    /// The results, with latency histograms and all counters.
    pub results: Vec<Measured>,
}

/// A failure to render a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A chart could not be drawn.
    #[error("the chart '{chart}' cannot be drawn: {source}")]
    Chart {
        /// Title of the chart.
        chart: String,
        /// The cause.
        source: charts_rs::Error,
    },
}

impl Report {
    /// Returns the report of a run.
    pub fn new(plan: RunPlan, systems: Vec<SystemRecord>, results: Vec<Measured>) -> Self {
        Self { analysis: analyse(&plan, &systems, &results), plan, systems, results }
    }

    /// Renders an HTML page.
    ///
    /// # Errors
    /// If a chart cannot be drawn.
    pub fn html(&self) -> Result<String, ReportError> {
        html::page(&content::document(self))
    }

    /// Renders Markdown, without charts.
    pub fn markdown(&self) -> String {
        markdown::text(&content::document(self))
    }

    /// Renders CSV, with one line per measurement and direction.
    pub fn csv(&self) -> String {
        csv::lines(self)
    }
}

/// The document, independent of its form.
#[derive(Clone, Debug, PartialEq)]
struct Document {
    title: String,
    subtitle: String,
    sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq)]
struct Section {
    title: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(String),
    Heading(String),
    List(Vec<String>),
    Table(Table),
    Code(String),
    Chart(Chart),
}

/// A table with row names in its first column.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// True if all columns except the first contain figures.
    figures: bool,
}

/// A chart, independent of its rendering.
#[derive(Clone, Debug, PartialEq)]
struct Chart {
    title: String,
    kind: Kind,
    /// Labels along the horizontal axis.
    labels: Vec<String>,
    /// Name and values; `None` for a missing value.
    series: Vec<(String, Vec<Option<f64>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Grouped bars.
    Bars,
    /// Lines on a linear axis.
    Lines,
    /// Lines on a logarithmic axis.
    LinesLog,
    /// A row per series, coloured by value from 0 to 100.
    Heat,
}
