//! The seccomp profile of a container, made of the stock one that comes with the runtime's
//! files: sockets of few families only, because not all of them belong to a network
//! namespace, and where it is asked for no new processes.

use serde_json::{Value, json};

/// Unix, IPv4, IPv6. Netlink has a rule of its own.
const FAMILIES: [u64; 3] = [1, 2, 10];
const NETLINK: u64 = 16;
const NETLINK_AUDIT: u64 = 9;
const CLONE_THREAD: u64 = 0x10000;
const EPERM: u64 = 1;
const ENOSYS: u64 = 38;

/// Calls that make rings, whose sockets no filter sees, or namespaces.
const NEVER: [&str; 5] = [
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "setns",
    "unshare",
];
const FORKS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

/// The profile; nothing if `stock` is none that allows by name.
#[must_use]
pub fn seccomp_profile(stock: &Value, may_fork: bool) -> Option<Value> {
    if stock.get("defaultAction")? != "SCMP_ACT_ERRNO" {
        return None;
    }
    let mut profile = stock.clone();
    let rules = profile.get_mut("syscalls")?.as_array_mut()?;
    for rule in rules.iter_mut() {
        let names = rule.get_mut("names")?.as_array_mut()?;
        names.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            let fork = !may_fork && FORKS.contains(&name);
            name != "socket" && !fork && !NEVER.contains(&name)
        });
    }
    rules.retain(|rule| rule["names"] != json!([]));
    for family in FAMILIES {
        rules.push(allow("socket", &[(0, "SCMP_CMP_EQ", family, 0)]));
    }
    let netlink = [
        (0, "SCMP_CMP_EQ", NETLINK, 0),
        (2, "SCMP_CMP_NE", NETLINK_AUDIT, 0),
    ];
    rules.push(allow("socket", &netlink));
    if !may_fork {
        let thread = [(0, "SCMP_CMP_MASKED_EQ", CLONE_THREAD, CLONE_THREAD)];
        rules.push(allow("clone", &thread));
        let process = [(0, "SCMP_CMP_MASKED_EQ", CLONE_THREAD, 0)];
        rules.push(rule("clone", "SCMP_ACT_ERRNO", EPERM, &process));
        // The C library then falls back to `clone`, whose flags can be seen.
        rules.push(deny("clone3", ENOSYS));
        rules.push(deny("fork", EPERM));
        rules.push(deny("vfork", EPERM));
    }
    Some(profile)
}

/// Index, comparison, value and second value of an argument.
type Argument = (u64, &'static str, u64, u64);

fn allow(name: &str, arguments: &[Argument]) -> Value {
    rule(name, "SCMP_ACT_ALLOW", 0, arguments)
}

fn deny(name: &str, errno: u64) -> Value {
    rule(name, "SCMP_ACT_ERRNO", errno, &[])
}

fn rule(name: &str, action: &str, errno: u64, arguments: &[Argument]) -> Value {
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|(index, op, value, second)| {
            json!({ "index": index, "op": op, "value": value, "valueTwo": second })
        })
        .collect();
    let mut rule = json!({ "names": [name], "action": action, "args": arguments });
    if errno != 0 {
        rule["errnoRet"] = errno.into();
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(profile: &Value, action: &str) -> Vec<String> {
        let rules = profile["syscalls"].as_array().unwrap().iter();
        let names = rules.filter(|rule| rule["action"] == action);
        names
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn what_is_left_of_the_stock() {
        let stock = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "archMap": [{ "architecture": "SCMP_ARCH_X86_64" }],
            "syscalls": [
                { "names": ["clone", "clone3", "fork", "read", "unshare", "vfork"], "action": "SCMP_ACT_ALLOW" },
                { "names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": null },
            ],
        });
        let forks = seccomp_profile(&stock, true).unwrap();
        assert_eq!(forks["archMap"], stock["archMap"]);
        let allowed = ["clone", "clone3", "fork", "read", "vfork"];
        assert_eq!(names(&forks, "SCMP_ACT_ALLOW")[..5], allowed);
        assert_eq!(names(&forks, "SCMP_ACT_ALLOW")[5..], ["socket"; 4]);
        let none = seccomp_profile(&stock, false).unwrap();
        let wanted = ["read", "socket", "socket", "socket", "socket", "clone"];
        assert_eq!(names(&none, "SCMP_ACT_ALLOW"), wanted);
        assert_eq!(
            names(&none, "SCMP_ACT_ERRNO"),
            ["clone", "clone3", "fork", "vfork"]
        );

        let open = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [] });
        assert_eq!(seccomp_profile(&open, true), None);
        assert_eq!(seccomp_profile(&json!({}), true), None);
    }
}
