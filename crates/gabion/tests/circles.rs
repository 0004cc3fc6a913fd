//! Test that no crate has an import circle.
//!
//! The graph has one node per source file. A file imports another one if its code outside of tests
//! names an item that the other file defines, by `use` or by an inline path; re-exports are
//! resolved. A module that uses items of its own ancestors is a part of them, which is no import.
//! A circle is a strongly connected component of more than one file.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "all of this is tests")]

mod project;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use project::sources;

/// The path of a module within its crate; empty for the root.
type ModulePath = Vec<String>;

/// Maximum number of re-exports between a name and its definition.
const RE_EXPORTS_MAX: usize = 8;

/// A module with a file of its own.
struct Module {
    file: String,
    /// Code without comments and tests.
    code: String,
    /// Names of the items at its top level.
    items: BTreeSet<String>,
    /// Imports: the local name (`*` for globs) and the path.
    imports: Vec<(String, Vec<String>)>,
}

/// The modules of a crate.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

impl Module {
    fn parse(file: &str, text: &str) -> Self {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code = text.lines().filter(is_code).collect::<Vec<_>>().join("\n");
        let items = code.lines().filter_map(item_name).collect();
        let imports = use_statements(&code).iter().flat_map(|tree| leaves(tree)).collect();
        Self { file: file.to_owned(), code, items, imports }
    }
}

/// Returns the name of the item that a line at the top level defines.
fn item_name(line: &str) -> Option<String> {
    let line =
        line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let keyword = words.find(|word| !["pub", "unsafe", "async", "extern", "C", "const"].contains(word))?;
    let kinds = ["fn", "struct", "enum", "trait", "type", "static", "union", "macro_rules"];
    let name = if kinds.contains(&keyword) { words.next()? } else { keyword };
    let is_constant = line.trim_start_matches("pub ").starts_with("const ");
    (kinds.contains(&keyword) || is_constant).then(|| name.to_owned())
}

/// Returns the trees of all `use` statements, without spaces.
fn use_statements(code: &str) -> Vec<String> {
    let starts = |line: &str| {
        let line = line.trim_start();
        let line =
            line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
        line.trim_start_matches("pub ").strip_prefix("use ").map(str::len).map(|rest| line.len() - rest)
    };
    let mut statements = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        if starts(line).is_some() {
            let statement = code[at..].split(';').next().unwrap();
            let tree = statement.split_once("use ").unwrap().1;
            statements.push(tree.replace(" as ", "@").split_whitespace().collect());
        }
        at += line.len();
    }
    statements
}

/// Returns the local name and path of each leaf of a `use` tree.
fn leaves(tree: &str) -> Vec<(String, Vec<String>)> {
    let Some(open) = tree.find('{') else {
        let (path, alias) = tree.split_once('@').map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path: Vec<String> = path.split("::").map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map(str::to_owned).or_else(|| path.last().cloned()).unwrap_or_default();
        return vec![(name, path)];
    };
    let (prefix, group) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.iter().filter(|part| !part.is_empty()).flat_map(|part| leaves(&format!("{prefix}{part}"))).collect()
}

impl Crate {
    /// Returns the file that defines the item at `path`, as seen in the module `from`.
    fn definition(&self, from: &[String], path: &[String], re_exports: usize) -> Option<&str> {
        let (mut module, mut rest): (ModulePath, &[String]) = match path.first().map(String::as_str) {
            Some("crate") => (Vec::new(), &path[1..]),
            Some("self") => (from.to_vec(), &path[1..]),
            Some("super") => (from[..from.len().checked_sub(1)?].to_vec(), &path[1..]),
            _ => (from.to_vec(), path),
        };
        while rest.first().is_some_and(|segment| segment == "super") {
            module.pop()?;
            rest = &rest[1..];
        }
        while let Some((segment, after)) = rest.split_first() {
            let mut child = module.clone();
            child.push(segment.clone());
            if !self.modules.contains_key(&child) {
                break;
            }
            (module, rest) = (child, after);
        }
        let name = rest.first()?;
        let found = self.modules.get(&module)?;
        if found.items.contains(name) {
            return Some(&found.file);
        }
        let re_exports = re_exports.checked_sub(1)?;
        let named = found.imports.iter().filter(|(local, path)| local == name && path != rest);
        let globs = found.imports.iter().filter(|(local, _)| local == "*");
        let mut targets = named
            .map(|(_, path)| [path.as_slice(), &rest[1..]].concat())
            .chain(globs.map(|(_, path)| [&path[..path.len() - 1], rest].concat()));
        targets.find_map(|target| self.definition(&module, &target, re_exports))
    }

    /// Returns the files that a module imports.
    fn imports(&self, path: &ModulePath, module: &Module) -> BTreeSet<&str> {
        let mut paths: Vec<Vec<String>> = module.imports.iter().map(|(_, path)| path.clone()).collect();
        // A use of several segments, such as `crate::a::B` or `imported_module::B`.
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for text in module.code.split(|c: char| !is_path(c)).filter(|text| text.contains("::")) {
            let segments: Vec<String> = text
                .trim_matches(':')
                .split("::")
                .filter(|each| !each.is_empty())
                .map(str::to_owned)
                .collect();
            let alias = module.imports.iter().find(|(local, _)| Some(local) == segments.first());
            let segments = match alias {
                Some((_, path)) => [path.as_slice(), &segments[1..]].concat(),
                None => segments,
            };
            paths.push(segments);
        }
        let is_ancestor = |file: &str| {
            (0..path.len())
                .any(|length| self.modules.get(&path[..length]).is_some_and(|each| each.file == file))
        };
        let defined = paths.iter().filter_map(|target| self.definition(path, target, RE_EXPORTS_MAX));
        defined.filter(|file| *file != module.file && !is_ancestor(file)).collect()
    }

    /// Returns the circles, each with its files.
    fn circles(&self) -> Vec<Vec<&str>> {
        let graph: BTreeMap<&str, BTreeSet<&str>> = self
            .modules
            .iter()
            .map(|(path, module)| (module.file.as_str(), self.imports(path, module)))
            .collect();
        let reachable: BTreeMap<&str, BTreeSet<&str>> =
            graph.keys().map(|file| (*file, reachable(&graph, file))).collect();
        let mut circles = BTreeSet::new();
        for (file, targets) in &reachable {
            let circle: Vec<&str> =
                targets.iter().filter(|other| reachable[**other].contains(file)).copied().collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

fn reachable<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = graph[from].iter().copied().collect();
    while let Some(file) = left.pop() {
        if found.insert(file) {
            left.extend(&graph[file]);
        }
    }
    found
}

/// Returns the module path of a source file below `src`; `None` for tests.
fn module_path(file: &Path) -> Option<ModulePath> {
    let mut path: ModulePath = file.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    let last = path.pop()?;
    let name = last.strip_suffix(".rs")?;
    if !["mod", "lib", "main"].contains(&name) {
        path.push(name.to_owned());
    }
    let is_test =
        |part: &String| part == "tests" || part == "testing" || part == "fuzz" || part.ends_with("_tests");
    (!path.iter().any(is_test)).then_some(path)
}

fn crates<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (path, text) in files {
        let Ok(inside) = path.strip_prefix("crates") else { continue };
        let mut parts = inside.iter();
        let name = parts.next().unwrap().to_str().unwrap().to_owned();
        let Ok(file) = parts.as_path().strip_prefix("src") else { continue };
        if let Some(module) = module_path(file) {
            let parsed = Module::parse(&path.display().to_string(), text);
            crates.entry(name).or_default().modules.insert(module, parsed);
        }
    }
    crates
}

#[test]
fn circles_are_found() {
    let circles = |files: &[(&'static str, &'static str)]| {
        let crates = crates(files.iter().map(|(path, text)| (Path::new(*path), *text)));
        crates["x"].circles().len()
    };
    let root = ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;");
    let b = ("crates/x/src/b.rs", "use crate::A;\npub struct B;");
    let a = ("crates/x/src/a/mod.rs", "mod c;\npub use c::A;");
    // The re-export in the root leads to the file that defines the item.
    assert_eq!(
        circles(&[
            root,
            a,
            b,
            ("crates/x/src/a/c.rs", "use crate::{\n    b::B as Other,\n};\npub struct A;")
        ]),
        1
    );
    assert_eq!(circles(&[root, a, b, ("crates/x/src/a/c.rs", "pub struct A(crate::b::B);")]), 1);
    assert_eq!(circles(&[root, a, b, ("crates/x/src/a/c.rs", "use crate::b;\npub struct A(b::B);")]), 1);
    assert_eq!(circles(&[root, a, b, ("crates/x/src/a/c.rs", "// crate::b::B\npub struct A;")]), 0);
    let with_test = "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
    assert_eq!(circles(&[root, a, b, ("crates/x/src/a/c.rs", with_test)]), 0);
}

#[test]
fn no_crate_has_an_import_circle() {
    let files: Vec<_> = sources().collect();
    let crates = crates(files.iter().map(|(path, text)| (path.as_path(), text.as_str())));
    assert!(crates.len() > 10, "{} crates", crates.len());
    let edges: usize = crates
        .values()
        .map(|each| each.modules.iter().map(|(path, module)| each.imports(path, module).len()).sum::<usize>())
        .sum();
    assert!(edges > 1000, "only {edges} imports");
    let circles: Vec<_> =
        crates.iter().flat_map(|(name, each)| each.circles().into_iter().map(move |c| (name, c))).collect();
    assert!(circles.is_empty(), "{circles:#?}");
}
