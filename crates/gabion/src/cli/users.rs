//! Arguments of `gabion user`, `gabion group` and `gabion policy`.

use std::path::PathBuf;

use clap::Subcommand;

/// Manage the users of S3, whose rights are those of their policies
///
/// An access key of the user, 'gabion key create --user NAME', gives the rights of its policies, of
/// the policies of its groups, and those that policies and ACLs of buckets give to it. A statement
/// that denies wins over all that allow.
///
/// Users of a cluster (--cluster) are those of its object gateways. They have no policies and no
/// groups: each has access to its own buckets, and to those whose policy or ACL permits it.
#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Create a user
    #[command(after_long_help = "\
Examples:
  gabion user create anna --policy readonly
  gabion user create backup --policy writeonly,logs --group operators
  gabion key create --user anna
  gabion user create anna --cluster prod")]
    Create {
        /// Name of the user
        #[arg(value_name = "USER")]
        name: String,
        /// Policies of the user [default: none]
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
        policy: Vec<String>,
        /// Groups of the user [default: none]
        #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
        group: Vec<String>,
        /// Cluster whose object gateways have the user [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    /// List the users
    List {
        /// Cluster whose object gateways have the users [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    /// Show a user with its access keys
    Show {
        /// Name of the user
        #[arg(value_name = "USER")]
        name: String,
        /// Cluster whose object gateways have the user [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    /// Replace the policies or groups of a user
    Set {
        /// Name of the user
        #[arg(value_name = "USER")]
        name: String,
        /// All policies of the user from now on; '' for none
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
        policy: Option<Vec<String>>,
        /// All groups of the user from now on; '' for none
        #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
        group: Option<Vec<String>>,
    },
    /// Delete a user and its access keys. Its buckets and objects stay; a user of a cluster that
    /// owns buckets is not deleted
    Delete {
        /// Name of the user
        #[arg(value_name = "USER")]
        name: String,
        /// Cluster whose object gateways have the user [default: the S3 services of pools]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
}

/// Manage the groups of users of S3, who have the policies of their groups
#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// Create a group
    Create {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        name: String,
        /// Policies of the group [default: none]
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
        policy: Vec<String>,
    },
    /// List the groups
    List,
    /// Show a group with its users
    Show {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        name: String,
    },
    /// Replace the policies of a group
    Set {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        name: String,
        /// All policies of the group from now on; '' for none
        #[arg(long, value_name = "POLICY,...", value_delimiter = ',', required = true)]
        policy: Vec<String>,
    },
    /// Delete a group without users
    Delete {
        /// Name of the group
        #[arg(value_name = "GROUP")]
        name: String,
    },
}

/// Manage the policies of users and groups of S3: documents of IAM
///
/// The policies readonly, readwrite and writeonly are built in.
#[derive(Subcommand, Debug)]
pub(crate) enum PolicyCommand {
    /// Create a policy
    #[command(after_long_help = "\
Example of a document:
  {\"Version\": \"2012-10-17\", \"Statement\": [{
    \"Effect\": \"Allow\",
    \"Action\": [\"s3:GetObject\", \"s3:PutObject\"],
    \"Resource\": \"arn:aws:s3:::home/${aws:username}/*\"}]}")]
    Create {
        /// Name of the policy
        #[arg(value_name = "POLICY")]
        name: String,
        /// File with the document; '-' for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the policies
    List,
    /// Show the document of a policy
    Show {
        /// Name of the policy
        #[arg(value_name = "POLICY")]
        name: String,
    },
    /// Replace the document of a policy. The next requests of its users are subject to it
    Set {
        /// Name of the policy
        #[arg(value_name = "POLICY")]
        name: String,
        /// File with the document; '-' for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete a policy that no user or group has
    Delete {
        /// Name of the policy
        #[arg(value_name = "POLICY")]
        name: String,
    },
}
