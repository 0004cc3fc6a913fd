// The page of S3 identities: users, access keys, groups, policies, identity providers and roles.
import { execFileSync } from "node:child_process";

/** Uploads an object with an access key, and returns the status of the response. */
function upload(dir, s3Port, [key, secret]) {
  // Older versions of curl do not send the hash of the data, which S3 requires.
  return execFileSync("curl", ["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
    "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", `${key}:${secret}`, "--upload-file", `${dir}/object.txt`, `http://127.0.0.1:${s3Port}/backups/of-anna.txt`], { encoding: "utf8" });
}

/** Uses each control of the page as an administrator. Some objects stay for the screenshots. */
export async function identities({ page, dialog, press, closed, open, shot, accessible, check, run, dir, s3Port }) {
  const json = (...words) => JSON.parse(run(...words, "--json"));
  const region = (list) => page.getByRole("region", { name: `All ${list.toLowerCase()}`, exact: true });
  const row = (list, name) => region(list).getByRole("row", { name });
  const button = (shown, name) => shown.getByRole("button", { name, exact: true }).click();
  const field = (name, options) => dialog.getByLabel(name, options);
  const create = (what) => button(page, `Create ${what}`);
  const confirm = async (name) => { await field(/to confirm/).fill(name); await press("Delete"); };
  const cancel = async () => { await press("Cancel"); await closed(); };

  await open("Identities");
  await page.getByText("No users.").waitFor();
  check("the built-in policies are listed", (await region("Policies").getByText("built in").count()) === 3);
  await button(row("Policies", /^readonly/), "Show");
  await dialog.getByText('"s3:Get*"').waitFor();
  await accessible("a built-in policy");
  await press("Done");
  await closed();

  // A policy: errors of the syntax and of the document, then its creation and a change.
  await create("a policy");
  await field("Name", { exact: true }).fill("home");
  const text = await field(/^Document/).inputValue();
  await field(/^Document/).fill(text.slice(0, -2));
  await press("Create");
  await dialog.getByText("the document is not JSON").waitFor();
  await field(/^Document/).fill(text.replace("Allow", "Permit"));
  await press("Create");
  await dialog.getByRole("alert").getByText("the policy is malformed").waitFor();
  await accessible("a malformed policy");
  await shot("policy-malformed");
  await field(/^Document/).fill(text);
  await press("Create");
  await row("Policies", /^home nobody/).waitFor();
  await button(row("Policies", /^home/), "Edit");
  check("the editor has the document", (await field(/^Document/).inputValue()) === text);
  await field(/^Document/).fill(text.replaceAll("BUCKET", "backups"));
  await press("Save");
  await closed();
  check("the document is stored", json("policy", "show", "home").document.Statement[0].Resource[0] === "arn:aws:s3:::backups");

  // A group, a user with a key, and the rights of the key after policies are attached and detached.
  await create("a group");
  await field("Name", { exact: true }).fill("ops");
  await field("home").check();
  await press("Create");
  await row("Groups", /^ops home none/).waitFor();
  await create("a user");
  await field("Name", { exact: true }).fill("anna");
  await field("ops").check();
  await press("Create");
  await row("Users", /^anna none ops 0/).waitFor();
  await button(row("Users", /^anna/), "Create a key");
  await press("Create");
  await dialog.getByText("it cannot be shown again").waitFor();
  const key = await dialog.locator("code").allInnerTexts();
  await accessible("a new access key");
  await shot("new-key");
  await press("Done");
  await closed();
  await row("Access keys", new RegExp(`^${key[0]} anna never`)).waitFor();
  check("the page keeps no secret", !(await page.content()).includes(key[1]));
  check("the rights of the group do not include uploads", upload(dir, s3Port, key) === "403");
  await button(row("Users", /^anna/), "Policies and groups");
  await field("writeonly").check();
  check("the groups of the user are checked", await field("ops").isChecked());
  await accessible("the policies of a user");
  await shot("user-policies");
  await press("Set");
  await row("Users", /^anna writeonly ops 1/).waitFor();
  check("an attached policy gives its rights", upload(dir, s3Port, key) === "200");
  await button(row("Users", /^anna/), "Policies and groups");
  await field("writeonly").uncheck();
  await press("Set");
  await row("Users", /^anna none ops/).waitFor();
  check("a detached policy gives none", upload(dir, s3Port, key) === "403");

  // A key that expires, of the administrator.
  await create("an access key");
  await field(/^Hours/).fill("1000");
  await press("Create");
  await dialog.getByRole("alert").getByText("cannot be valid").waitFor();
  await field(/^Hours/).fill("1.5");
  await press("Create");
  await dialog.getByText("it cannot be shown again").waitFor();
  const [passing] = await dialog.locator("code").allInnerTexts();
  await press("Done");
  await closed();
  const stored = json("key", "list").find((one) => one.access_key === passing);
  check("the key of the administrator expires", stored.user === "gabion" && stored.expires - stored.created === 5400);

  // An identity provider and a role.
  await create("an identity provider");
  await field("Name", { exact: true }).fill("corp");
  await field(/^Issuer/).fill("https://login.example.org/realms/main");
  await field(/^Client ids/).fill("storage console");
  await press("Create");
  await row("Identity providers", /^corp .*console, storage 0 none/).waitFor();
  await button(row("Identity providers", /^corp/), "Change");
  await field(/^Claim that/).fill("email");
  await press("Set");
  await closed();
  const provider = json("provider", "show", "corp");
  check("the provider has its settings", provider.user_claim === "email" && provider.key_file === null && provider.audiences.join() === "console,storage");
  await create("a role");
  await field("Name", { exact: true }).fill("readers");
  await field("readonly").check();
  await press("Create");
  await dialog.getByRole("alert").getByText("a role without claims").waitFor();
  await field(/^Claims/).fill("groups");
  await press("Create");
  await dialog.getByRole("alert").getByText("is not a claim and its pattern").waitFor();
  await field(/^Claims/).fill("groups=storage-*\nhd=example.org");
  await accessible("a role");
  await shot("role");
  await press("Create");
  await row("Roles", /^readers corp readonly groups=storage-\*, hd=example.org 60 min/).waitFor();
  await button(row("Roles", /^readers/), "Change");
  check("the claims are shown", (await field(/^Claims/).inputValue()) === "groups=storage-*\nhd=example.org");
  await field(/^Claims/).fill("");
  await field(/^Accept every token/).check();
  await field(/^Longest/).fill("900");
  await press("Set");
  await row("Roles", /^readers corp readonly any token 15 min/).waitFor();

  // Deletions: a policy and a provider in use are refused; a user and its keys are destroyed.
  await button(row("Identity providers", /^corp/), "Delete");
  await dialog.getByText("a provider with roles is refused").waitFor();
  await confirm("corp");
  await dialog.getByRole("alert").getByText("is used by role 'readers'").waitFor();
  await cancel();
  await button(row("Policies", /^home/), "Delete");
  await confirm("home");
  await dialog.getByRole("alert").getByText("is attached to group 'ops'").waitFor();
  await cancel();
  await button(row("Users", /^anna/), "Delete");
  check("a deletion is locked before the name is typed", await dialog.getByRole("button", { name: "Delete", exact: true }).isDisabled());
  await dialog.getByText(`its access keys: ${key[0]}`).waitFor();
  await accessible("the deletion of a user");
  await shot("user-delete");
  await confirm("anna");
  await page.getByText("No users.").waitFor();
  check("the user and its key are deleted", json("user", "list").length === 0 && json("key", "list").every((one) => one.user !== "anna"));
  check("a deleted key is refused", upload(dir, s3Port, key) === "403");
  for (const [list, kind, name] of [["Groups", "group", "ops"], ["Policies", "policy", "home"], ["Access keys", "key", passing], ["Roles", "role", "readers"], ["Identity providers", "provider", "corp"]]) {
    await button(row(list, new RegExp(`^${name}`)), "Delete");
    await confirm(name);
    await closed();
    check(`${name} is deleted`, json(kind, "list").every((one) => one.name !== name && one.access_key !== name));
  }

  // Objects for the screenshots.
  run("group", "create", "operators", "--policy", "readwrite");
  run("user", "create", "anna", "--policy", "readonly", "--group", "operators");
  run("user", "create", "ben", "--policy", "readonly,writeonly");
  run("key", "create", "--user", "anna");
  run("provider", "create", "corp", "--issuer", "https://login.example.org/realms/main", "--audience", "storage");
  run("role", "create", "readers", "--provider", "corp", "--policy", "readonly", "--claim", "groups=storage-*");
  await row("Roles", /^readers/).waitFor();
  await page.getByLabel("Filter").fill("ben");
  await page.getByText("None matches the filter.").first().waitFor();
  check("the filter leaves one user", (await region("Users").getByRole("rowheader").allInnerTexts()).join() === "ben");
  await page.getByLabel("Filter").fill("");
}
