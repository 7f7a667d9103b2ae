//! A batch: requests that are planned together on one snapshot (`formats.md`, version 2, section "Batch").

pub mod choice;
