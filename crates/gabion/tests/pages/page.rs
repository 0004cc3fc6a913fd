//! The commands of a Markdown page, with their printed output.

/// First words of commands in blocks without a prompt.
const PROGRAMS: [&str; 13] = [
    "./run",
    "cargo",
    "chgrp",
    "chmod",
    "cp",
    "curl",
    "gabion",
    "mkfs.ext4",
    "mount",
    "qemu-img",
    "systemctl",
    "umount",
    "virsh",
];

/// A command to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Commands of a `setup` comment.
    Setup(String),
    /// A printed command. `output` is `None` if the page does not show any, in blocks without a
    /// prompt.
    Command { command: String, output: Option<String>, line: usize },
}

impl Step {
    pub(crate) fn command(&self) -> &str {
        match self {
            Self::Setup(command) | Self::Command { command, .. } => command,
        }
    }
}

/// The commands of a page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) steps: Vec<Step>,
    /// Commands that are not run, with the reasons.
    pub(crate) skipped: Vec<(String, String)>,
}

/// A `not run` comment.
#[derive(Debug)]
struct Skip {
    prefix: String,
    reason: String,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut skips = Vec::new();
        let mut page_reason = None;
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            if line.starts_with("<!--") {
                let mut comment = line.to_owned();
                while !comment.ends_with("-->") {
                    comment += "\n";
                    comment += lines.next().unwrap_or_else(|| panic!("line {index}: an open comment")).1;
                }
                let body = comment.trim_start_matches("<!--").trim_end_matches("-->").trim();
                if let Some(commands) = body.strip_prefix("setup:") {
                    page.steps.push(Step::Setup(commands.trim().to_owned()));
                } else if let Some(reason) = body.strip_prefix("page not run:") {
                    page_reason = Some(reason.trim().to_owned());
                } else if let Some(reason) = body.strip_prefix("not run:") {
                    skips.push(Skip { prefix: String::new(), reason: reason.trim().into() });
                } else if let Some((prefix, reason)) =
                    body.strip_prefix("not run (").and_then(|rest| rest.split_once("):"))
                {
                    skips.push(Skip { prefix: prefix.into(), reason: reason.trim().into() });
                }
                continue;
            }
            let is_fence = line.starts_with("```");
            if !is_fence && !line.starts_with("    ") {
                continue;
            }
            let mut block = Vec::new();
            if !is_fence {
                block.push((index, &line[4..]));
            }
            while let Some((index, line)) = lines.next_if(|(_, line)| {
                if is_fence { !line.starts_with("```") } else { line.is_empty() || line.starts_with("    ") }
            }) {
                block.push((index, if is_fence { line } else { line.get(4..).unwrap_or("") }));
            }
            if is_fence {
                lines.next();
            }
            for step in commands(&block) {
                let reason = skips.iter().find(|skip| step.command().starts_with(&skip.prefix));
                match page_reason.as_ref().or(reason.map(|skip| &skip.reason)) {
                    Some(reason) => {
                        let first = step.command().lines().next().unwrap_or_default().to_owned();
                        page.skipped.push((first, reason.clone()));
                    }
                    None => page.steps.push(step),
                }
            }
            skips.clear();
        }
        page
    }
}

/// Returns the commands of a block, none if it is something else.
fn commands(block: &[(usize, &str)]) -> Vec<Step> {
    let has_prompt = block.iter().any(|(_, line)| line.starts_with("$ "));
    let is_shell = block
        .first()
        .is_some_and(|(_, line)| PROGRAMS.contains(&line.split_whitespace().next().unwrap_or_default()));
    if !has_prompt && !is_shell {
        return Vec::new();
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for (index, line) in block {
        let typed = if has_prompt { line.strip_prefix("$ ") } else { Some(*line) };
        match (steps.last_mut(), typed) {
            (Some(Step::Command { command, .. }), _) if continues => {
                *command += "\n";
                *command += line;
                continues = line.ends_with('\\');
            }
            (_, Some("")) => {}
            (_, Some(typed)) => {
                let output = has_prompt.then(String::new);
                steps.push(Step::Command { command: typed.to_owned(), output, line: index + 1 });
                continues = typed.ends_with('\\');
            }
            (Some(Step::Command { output: Some(output), .. }), None) => {
                *output += line;
                *output += "\n";
            }
            _ => panic!("line {}: output before the first command", index + 1),
        }
    }
    steps
}

#[test]
fn a_page_is_split_into_commands() {
    let page = Page::parse(
        "<!-- setup: mkdir x -->\n\n    $ gabion a \\\n        --b\n    out 1\n\n    out 2\n    $ gabion c\n\ntext\n\n\
         <!-- not run (gabion vm): needs QEMU -->\n    $ gabion vm list\n    $ true\n\nmore\n\n    gabion d\n    gabion e\n\n\
         ```\nnot a command\n```\n",
    );
    let commands: Vec<_> = page.steps.iter().map(Step::command).collect();
    assert_eq!(commands, ["mkdir x", "gabion a \\\n    --b", "gabion c", "true", "gabion d", "gabion e"]);
    assert!(matches!(&page.steps[1], Step::Command { output: Some(output), line: 3, .. }
        if output.trim() == "out 1\n\nout 2"));
    assert!(matches!(&page.steps[4], Step::Command { output: None, .. }));
    assert_eq!(page.skipped, [("gabion vm list".to_owned(), "needs QEMU".to_owned())]);
}
