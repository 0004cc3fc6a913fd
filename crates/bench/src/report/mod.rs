//! The report of a run: one document, as a page that needs nothing else, as Markdown, and its figures as CSV and JSON.
//!
//! Always true: all forms say the same, for they are made of the same document; the page loads nothing and runs no script.
//! Must not know: how anything was measured.

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

/// Everything that a report is made of.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was to be done.
    pub plan: RunPlan,
    /// What the systems said of themselves.
    pub systems: Vec<SystemRecord>,
    /// What the results mean.
    pub analysis: Analysis,
    /// The results, with counts of latencies and all counters.
    pub results: Vec<Measured>,
}

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A chart.
    #[error("the chart '{chart}' cannot be drawn: {source}")]
    Chart {
        /// Its title.
        chart: String,
        /// Why.
        source: charts_rs::Error,
    },
}

impl Report {
    /// Of a run's folder.
    pub fn new(plan: RunPlan, systems: Vec<SystemRecord>, results: Vec<Measured>) -> Self {
        Self { analysis: analyse(&plan, &systems, &results), plan, systems, results }
    }

    /// One page, for browsers and printers.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn html(&self) -> Result<String, ReportError> {
        html::page(&content::document(self))
    }

    /// The same without charts.
    pub fn markdown(&self) -> String {
        markdown::text(&content::document(self))
    }

    /// A line for each measurement.
    pub fn csv(&self) -> String {
        csv::lines(self)
    }
}

/// A document, before it has a form.
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

/// A table whose first column names its rows.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns but the first are figures.
    figures: bool,
}

/// A chart, before it is drawn.
#[derive(Clone, Debug, PartialEq)]
struct Chart {
    title: String,
    kind: Kind,
    /// Places along the horizontal axis.
    places: Vec<String>,
    /// Name and values; nothing where there is none.
    series: Vec<(String, Vec<Option<f64>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Bars side by side.
    Bars,
    /// Lines.
    Lines,
    /// Lines over values of which the largest are many times the smallest.
    LinesLog,
    /// A row for each series, coloured by value from 0 to 100.
    Heat,
}
