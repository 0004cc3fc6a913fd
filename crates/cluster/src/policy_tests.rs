//! Tests of the policy file.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Policy, Slice};

/// Appendix B of the SUSE implementation guide, unchanged.
pub(crate) const APPENDIX_B: &str = "\
cluster-ceph/cluster/*.sls
role-master/cluster/salt*.sls
role-admin/cluster/salt*.sls
role-mon/cluster/mon*.sls
role-mgr/cluster/mon*.sls
role-mds/cluster/mon*.sls
role-openattic/cluster/salt*.sls
config/stack/default/global.yml
config/stack/default/ceph/cluster.yml
profile-apollo/cluster/*.sls
profile-apollo/stack/default/ceph/minions/*.yml
";

fn select(policy: &str, paths: &[&'static str]) -> Vec<&'static str> {
    let (policy, mistakes) = Policy::parse(policy);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let paths: BTreeSet<&str> = paths.iter().copied().collect();
    policy.select(&paths).0
}

#[test]
fn appendix_b_selects_roles_and_profiles() {
    let paths = [
        "cluster-ceph/cluster/mon1.sls",
        "cluster-ceph/cluster/osd1.sls",
        "config/stack/default/ceph/cluster.yml",
        "config/stack/default/global.yml",
        "profile-apollo/cluster/osd1.sls",
        "profile-apollo/stack/default/ceph/minions/osd1.yml",
        "profile-default/cluster/osd1.sls",
        "role-admin/cluster/salt.sls",
        "role-master/cluster/salt.sls",
        "role-mds/cluster/mon1.sls",
        "role-mgr/cluster/mon1.sls",
        "role-mon/cluster/mon1.sls",
        "role-mon/cluster/osd1.sls",
        "role-openattic/cluster/salt.sls",
    ];
    let selected = select(APPENDIX_B, &paths);
    let expected: Vec<&str> = paths
        .into_iter()
        .filter(|path| !path.contains("default/cluster/osd1") && *path != "role-mon/cluster/osd1.sls")
        .collect();
    assert_eq!(selected.iter().copied().collect::<BTreeSet<_>>(), expected.iter().copied().collect());
    assert_eq!(selected.len(), expected.len());
    assert_eq!(selected[0], "cluster-ceph/cluster/mon1.sls", "the order is the one of the policy");
}

#[test]
fn slices_and_expressions_select_among_matches() {
    let hosts = ["role-mon/cluster/a1.sls", "role-mon/cluster/a2.sls", "role-mon/cluster/b1.sls"];
    for (options, expected) in [
        ("slice=[:2]", &["a1", "a2"][..]),
        ("slice=[1:]", &["a2", "b1"]),
        ("slice=[-1:]", &["b1"]),
        ("slice=[:-1]", &["a1", "a2"]),
        ("regex=.*1\\.sls$", &["a1", "b1"]),
        ("re=.*/a", &["a1", "a2"]),
        ("regex=.*1\\.sls$ slice=[1:2]", &["b1"]),
    ] {
        let selected = select(&format!("role-mon/cluster/*.sls {options}"), &hosts);
        let names: Vec<&str> =
            selected.iter().map(|path| &path["role-mon/cluster/".len()..path.len() - 4]).collect();
        assert_eq!(names, expected, "{options}");
    }
}

#[test]
fn comments_and_empty_lines_are_ignored() {
    let (policy, mistakes) = Policy::parse("# hosts\n\n  role-mon/cluster/a.sls  # one\n");
    assert!(mistakes.is_empty());
    assert_eq!(policy.selections.len(), 1);
}

#[test]
fn every_mistake_of_a_file_is_reported_with_its_line() {
    let text = "\
role-monitor/cluster/*.sls
nonsense
/etc/passwd
role-mon/../secret
role-mon/cluster/*.sls slice=[1-3]
role-mon/cluster/*.sls regex=(
role-mon/cluster/*.sls first=3
role-mon/cluster/*.sls word
section/x.sls
role-mgr/
";
    let (policy, mistakes) = Policy::parse(text);
    assert!(policy.selections.is_empty());
    assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert!(mistakes[0].message.contains("unknown role 'monitor'"), "{}", mistakes[0]);
    assert!(mistakes[4].message.contains("[1-3]"), "{}", mistakes[4]);
}

proptest! {
    #[test]
    fn slices_agree_with_their_definition(
        length in 0_usize..8, first in proptest::option::of(-10_i64..10), end in proptest::option::of(-10_i64..10),
    ) {
        let names: Vec<String> = (0..length).map(|index| index.to_string()).collect();
        let items: Vec<&str> = names.iter().map(String::as_str).collect();
        let count = i64::try_from(length).unwrap();
        let absolute = |bound: i64| if bound < 0 { bound + count } else { bound };
        let inside = |index: &i64| first.is_none_or(|first| *index >= absolute(first))
            && end.is_none_or(|end| *index < absolute(end));
        let expected: Vec<String> = (0..count).filter(inside).map(|index| index.to_string()).collect();
        prop_assert_eq!(Slice { first, end }.of(&items).to_vec(), expected);
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "(?s).{0,200}") {
        let (policy, _) = Policy::parse(&text);
        policy.select(&BTreeSet::from(["role-mon/cluster/a.sls"]));
    }

    #[test]
    fn every_line_is_valid_or_a_mistake(lines in proptest::collection::vec("[a-z/*-]{1,20}", 0..10)) {
        let (policy, mistakes) = Policy::parse(&lines.join("\n"));
        prop_assert_eq!(policy.selections.len() + mistakes.len(), lines.len());
    }
}
