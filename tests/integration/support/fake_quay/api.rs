//! `/api/v1`: robots, teams, grants, the organisation's log, as measured.

use serde_json::{Value, json};

use super::answers::{read_only, robot_missing, robots_disabled, shape_a, shape_b, shape_c};
use super::truth::What;
use super::wire::{HttpRequest, Reply};
use super::world::{LogRow, World, rfc_2822};

/// So many entries of the log are on a page.
const PAGE: usize = 20;

pub struct Api<'a> {
    pub world: &'a mut World,
    pub number: u64,
    pub request: &'a HttpRequest,
}

impl Api<'_> {
    pub fn answer(mut self) -> Reply {
        let request = self.request;
        let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
        let path = segments.get(2..).unwrap_or_default();
        if path.last() == Some(&"") {
            return Reply::html(405, "<h1>Method Not Allowed</h1>");
        }
        let ("organization" | "repository", Some(organization)) =
            (path.first().copied().unwrap_or_default(), path.get(1).copied())
        else {
            return self.not_found();
        };
        if let Err(refusal) = self.admit(organization) {
            return refusal;
        }
        if request.method != "GET" && self.world.read_only {
            return read_only();
        }
        let full = |short: &str| format!("{organization}+{short}");
        match (request.method.as_str(), &path[2..]) {
            ("GET", ["robots"]) => self.list(organization),
            ("PUT", ["robots", short]) => self.create(short, &full(short)),
            ("GET", ["robots", short]) => self.robot(&full(short)),
            ("DELETE", ["robots", short]) => self.delete(&full(short)),
            ("POST", ["robots", short, "regenerate"]) => self.regenerate(&full(short)),
            // It needs the scope user:admin, which a service of an organisation has not.
            ("GET", ["robots", _, "permissions"]) => self.unauthorized(),
            ("GET", ["team", team, "members"]) => self.members(organization, team),
            ("PUT", ["team", team, "members", member]) => self.join(organization, team, member),
            ("DELETE", ["team", team, "members", member]) => self.leave(organization, team, member),
            ("GET", ["logs"]) => self.logs(organization),
            ("PUT", [repository @ .., "permissions", "user", member])
                if path[0] == "repository" && !repository.is_empty() =>
            {
                self.grant(organization, &repository.join("/"), member)
            }
            (_, ["robots", ..] | ["team", ..] | ["logs"]) => {
                shape_b(405, "The method is not allowed for the requested URL.")
            }
            _ => self.not_found(),
        }
    }

    fn a(&self, status: u16, error_type: &str, text: &str) -> Reply {
        shape_a(&self.world.host, status, error_type, text)
    }

    fn invalid(&self, text: &str) -> Reply {
        self.a(400, "invalid_request", text)
    }

    fn not_found(&self) -> Reply {
        self.a(404, "not_found", "Not Found")
    }

    fn unauthorized(&self) -> Reply {
        self.a(403, "insufficient_scope", "Unauthorized")
    }

    fn admit(&self, organization: &str) -> Result<(), Reply> {
        let token = self.request.authorization("Bearer").unwrap_or_default();
        match self.world.tokens.get(token) {
            None if self.request.method == "GET" => {
                Err(self.a(401, "invalid_token", "Requires authentication"))
            }
            None => Err(shape_c()),
            Some(organizations)
                if organizations.contains(organization)
                    && self.world.organizations.contains_key(organization) =>
            {
                Ok(())
            }
            Some(_) => Err(self.unauthorized()),
        }
    }

    fn body(&self) -> Value {
        // What is no JSON is taken for an empty body without a word.
        serde_json::from_slice(&self.request.body).unwrap_or_else(|_| json!({}))
    }

    fn create(&mut self, short: &str, full: &str) -> Reply {
        let body = self.body();
        let description = body.get("description").cloned().unwrap_or_else(|| json!(""));
        let metadata = body.get("unstructured_metadata").cloned();
        let Some(text) = description.as_str().filter(|text| text.chars().count() <= 255) else {
            let text = format!("{description} is too long or no string\n\nFailed validating");
            return self.invalid(&text);
        };
        if metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
            return self
                .invalid("the metadata is not of type 'object'\n\nFailed validating 'type'");
        }
        if self.world.robots_disallowed {
            return robots_disabled(&self.world.host);
        }
        let invalid = |why: &str| format!("The name for the robot '{short}' is invalid: {why}");
        if !(2..=255).contains(&short.chars().count()) {
            let why = "Namespace must be between 2 and 255 characters in length";
            return self.invalid(&invalid(why));
        }
        if !matches_rule(short) {
            let why = "Namespace must match expression ^([a-z0-9]+(?:[._-][a-z0-9]+)*)$";
            return self.invalid(&invalid(why));
        }
        if self.world.robots.contains_key(full) {
            return self.invalid(&format!("Existing robot with name: {full}"));
        }
        if full.chars().count() > 255 {
            return shape_b(400, "value too long for type character varying(255)\n");
        }
        let stored = metadata.clone().unwrap_or_else(|| json!({}));
        self.world.create(Some(self.number), full, text, stored);
        let about =
            json!({ "robot": short, "description": text, "unstructured_metadata": metadata });
        let owner = full.split('+').next().unwrap_or_default().to_owned();
        self.world.row("create_robot", &owner, about);
        let mut answer = self.robot_json(full, true);
        answer["unstructured_metadata"] = json!(metadata);
        Reply::json(201, &answer)
    }

    fn robot(&self, full: &str) -> Reply {
        if self.world.robots.contains_key(full) {
            Reply::json(200, &self.robot_json(full, true))
        } else {
            robot_missing()
        }
    }

    fn robot_json(&self, full: &str, token: bool) -> Value {
        let robot = &self.world.robots[full];
        let mut answer = json!({
            "name": full,
            "created": rfc_2822(robot.created),
            "last_accessed": robot.last_accessed.map(rfc_2822),
            "description": robot.description,
            "unstructured_metadata": robot.metadata,
        });
        if token {
            answer["token"] = json!(robot.token);
        }
        answer
    }

    fn delete(&mut self, full: &str) -> Reply {
        match self.world.robots.get(full) {
            None => robot_missing(),
            Some(robot) if robot.mirrors => self.invalid("Robot is being used by a mirror"),
            Some(_) => {
                self.world.delete(Some(self.number), full);
                Reply::text(204, "application/json", "")
            }
        }
    }

    fn regenerate(&mut self, full: &str) -> Reply {
        if !self.world.robots.contains_key(full) {
            return robot_missing();
        }
        let token = self.world.random(64);
        if let Some(robot) = self.world.robots.get_mut(full) {
            robot.token = token;
        }
        self.world.note(Some(self.number), What::SecretChanged { robot: full.to_owned() });
        let mut answer = self.robot_json(full, true);
        answer.as_object_mut().unwrap().remove("unstructured_metadata");
        Reply::json(200, &answer)
    }

    fn list(&mut self, organization: &str) -> Reply {
        let request = self.request;
        let flag = |name: &str, default: bool| {
            request.query(name).map_or(default, |text| text.eq_ignore_ascii_case("true"))
        };
        let limit = self.request.query("limit").and_then(|text| text.parse().ok());
        let pattern = format!("{organization}+%");
        let found = self.world.robots.keys().filter(|name| like(name, &pattern));
        let row = |full: &String| {
            let mut row = self.robot_json(full, flag("token", true));
            row.as_object_mut().unwrap().remove("unstructured_metadata");
            if flag("permissions", false) {
                row["teams"] = json!([]);
                row["repositories"] = json!([]);
            }
            row
        };
        let rows: Vec<Value> = found.take(limit.unwrap_or(usize::MAX)).map(row).collect();
        if flag("token", true) {
            self.world.secrets_listed += rows.len();
        }
        Reply::json(200, &json!({ "robots": rows }))
    }

    fn members(&self, organization: &str, team: &str) -> Reply {
        let Some(found) = self.world.organizations[organization].teams.get(team) else {
            return self.not_found();
        };
        let members: Vec<Value> = found.members.iter().map(|name| member(name)).collect();
        Reply::json(200, &json!({ "name": team, "members": members }))
    }

    fn join(&mut self, organization: &str, team: &str, full: &str) -> Reply {
        let exists = self.world.robots.contains_key(full);
        let found = self.world.organizations.get_mut(organization);
        let Some(found) = found.and_then(|organization| organization.teams.get_mut(team)) else {
            return self.not_found();
        };
        if !exists {
            return self.invalid("Unknown user");
        }
        if !found.members.insert(full.to_owned()) {
            let text = format!("User {full} is already a member of team {team}");
            return shape_b(400, &text);
        }
        let (robot, team) = (full.to_owned(), team.to_owned());
        self.world.note(Some(self.number), What::Joined { robot, team });
        Reply::json(200, &member(full))
    }

    fn leave(&mut self, organization: &str, team: &str, full: &str) -> Reply {
        let found = self.world.organizations.get_mut(organization);
        let Some(found) = found.and_then(|organization| organization.teams.get_mut(team)) else {
            return self.not_found();
        };
        if !found.members.remove(full) {
            return self.invalid("Unknown user");
        }
        let (robot, team) = (full.to_owned(), team.to_owned());
        self.world.note(Some(self.number), What::Left { robot, team });
        Reply::text(204, "application/json", "")
    }

    fn grant(&mut self, organization: &str, repository: &str, full: &str) -> Reply {
        let exists = self.world.robots.contains_key(full);
        let role = self.body()["role"].as_str().unwrap_or_default().to_owned();
        let found = self.world.organizations.get_mut(organization);
        let Some(readers) = found.and_then(|found| found.repositories.get_mut(repository)) else {
            return self.not_found();
        };
        if !exists || role != "read" {
            return self.invalid("Unknown user");
        }
        if readers.insert(full.to_owned()) {
            let (robot, repository) = (full.to_owned(), repository.to_owned());
            self.world.note(Some(self.number), What::Granted { robot, repository });
        }
        Reply::json(200, &json!({ "role": "read", "name": full, "is_robot": true }))
    }

    /// Newest first, page by page; whole days.
    fn logs(&self, organization: &str) -> Reply {
        let bound = |name: &str| self.request.query(name).and_then(day);
        let (start, end) = (bound("starttime"), bound("endtime"));
        let within = |row: &&LogRow| {
            let day = jiff::Timestamp::from_microsecond(row.at.as_micros()).unwrap();
            let day = day.to_zoned(jiff::tz::TimeZone::UTC).date();
            row.organization == organization
                && start.is_none_or(|start| day >= start)
                && end.is_none_or(|end| day <= end)
        };
        let rows: Vec<&LogRow> = self.world.rows.iter().rev().filter(within).collect();
        let next = self.request.query("next_page").and_then(|text| text.strip_prefix("from-"));
        let from: usize = next.and_then(|text| text.parse().ok()).unwrap_or(0);
        let to = (from + PAGE).min(rows.len());
        let entry = |row: &&LogRow| {
            json!({
                "kind": row.kind,
                "metadata": row.metadata,
                "ip": "127.0.0.1",
                "datetime": rfc_2822(row.at),
                "performer": {
                    "kind": "user",
                    "name": row.performer,
                    "is_robot": row.performer.contains('+'),
                },
            })
        };
        let entries: Vec<Value> = rows[from.min(to)..to].iter().map(entry).collect();
        let mut answer = json!({
            "start_time": self.request.query("starttime"),
            "end_time": self.request.query("endtime"),
            "logs": entries,
        });
        if to < rows.len() {
            answer["next_page"] = json!(format!("from-{to}"));
        }
        Reply::json(200, &answer)
    }
}

fn member(full: &str) -> Value {
    json!({
        "name": full, "kind": "user", "is_robot": true, "invited": false,
        "avatar": { "name": full, "kind": "robot" },
    })
}

/// `^([a-z0-9]+(?:[._-][a-z0-9]+)*)$` as Python reads it, whose `$` lets one line break through.
fn matches_rule(short: &str) -> bool {
    let short = short.strip_suffix('\n').unwrap_or(short);
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    short.split(['.', '_', '-']).all(plain)
}

/// SQL's LIKE without regard to case: `_` is any one character, `%` any number.
fn like(text: &str, pattern: &str) -> bool {
    fn matches(text: &[u8], pattern: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'%', rest @ ..] => (0..=text.len()).any(|skip| matches(&text[skip..], rest)),
            [first, rest @ ..] => text.split_first().is_some_and(|(byte, text)| {
                (*first == b'_' || byte.eq_ignore_ascii_case(first)) && matches(text, rest)
            }),
        }
    }
    matches(text.as_bytes(), pattern.as_bytes())
}

fn day(text: &str) -> Option<jiff::civil::Date> {
    let mut parts = text.split('/').map(str::parse::<i16>);
    let mut part = || parts.next()?.ok();
    let (month, day, year) = (part()?, part()?, part()?);
    jiff::civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}
