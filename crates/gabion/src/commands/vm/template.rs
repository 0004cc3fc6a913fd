//! Templates for cloud-init.

use anyhow::Result;
use vm::Template;

use super::{VmContext, print};
use crate::cli::TemplateCommand;
use crate::output;

impl VmContext<'_> {
    pub(super) fn template(&self, command: TemplateCommand) -> Result<()> {
        let templates = self.store.templates();
        let name = |template: &Template| format!("{} {}", template.kind.name(), template.name);
        match command {
            TemplateCommand::Set { kind, name: of, file } => {
                let stored = templates.set(kind, &of, &file)?;
                self.ctx.done(&stored, |stored| format!("template {} stored", name(stored)))
            }
            TemplateCommand::List => self.ctx.list(&templates.list()?, name, output::templates),
            TemplateCommand::Show { kind, name } => {
                let template = templates.get(kind, &name)?;
                if self.ctx.json { print(&super::super::to_json(&template)?) } else { print(&template.text) }
            }
            TemplateCommand::Delete { kind, name } => {
                templates.delete(kind, &name)?;
                self.ctx.done(&(), |()| format!("template {} {name} deleted", kind.name()))
            }
        }
    }
}
