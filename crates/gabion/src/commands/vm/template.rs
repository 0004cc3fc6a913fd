//! Templates for cloud-init.

use anyhow::Result;
use vm::Template;

use super::{Work, print};
use crate::cli::TemplateCommand;
use crate::output;

impl Work<'_> {
    pub(super) fn template(&self, command: TemplateCommand) -> Result<()> {
        let templates = self.store.templates();
        let name = |template: &Template| format!("{} {}", template.kind.name(), template.name);
        match command {
            TemplateCommand::Set { kind, name: of, file } => {
                let kept = templates.set(kind, &of, &file)?;
                self.setting.done(&kept, |kept| format!("template {} is kept", name(kept)))
            }
            TemplateCommand::List => self.setting.list(&templates.list()?, name, output::templates),
            TemplateCommand::Show { kind, name } => {
                let template = templates.get(kind, &name)?;
                if self.setting.json {
                    print(&super::super::to_json(&template)?)
                } else {
                    print(&template.text)
                }
            }
            TemplateCommand::Delete { kind, name } => {
                templates.delete(kind, &name)?;
                self.setting.done(&(), |()| format!("template {} {name} is deleted", kind.name()))
            }
        }
    }
}
