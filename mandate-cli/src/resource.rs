//! How commands print the service's objects: one or a list, as text or JSON.

use std::fmt::Display;

use serde_json::value::RawValue;

use crate::client::{Client, Paging, Walk};
use crate::credential::Class;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::{Format, Global};
use crate::named::{Given, Named, to_read};
use crate::output::{Output, note};
use crate::service::Service;
use crate::table::{Field, Tabular};

/// A kind of object.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The path of its list.
    pub(crate) path: &'static str,
    /// The class of key that may read it. None: any class.
    pub(crate) class: Class,
    /// The member with an object's id, if there is one.
    pub(crate) id: Option<&'static str>,
    /// The columns of a list.
    pub(crate) columns: &'static [Field],
    /// The lines of one object.
    pub(crate) lines: &'static [Field],
    /// Arrays of objects within it, each with a title and its columns.
    pub(crate) tables: &'static [(&'static str, &'static [Field])],
}

/// A filter of a list: the parameter's name, and its value if given.
pub(crate) type Filter = (&'static str, Option<String>);

impl Resource {
    /// Shows the object in `body`.
    pub(crate) fn show(&self, body: &str, output: &mut Output) -> Result<Exit, Failure> {
        if output.is_json() {
            output.body(body)?;
            return Ok(Exit::Success);
        }
        if let Some(id) = self.id
            && fields::text(body, id).is_none()
        {
            return Err(Failure::new(
                Exit::UnknownAnswer,
                format!("the service's answer is not understood: {id} is required"),
            )
            .next("check that --base-url (or MANDATE_BASE_URL) is the service's address, and that this program is not older than it"));
        }
        for field in self.lines {
            if let Some(value) = field.value(body) {
                output.field(field.label, &value, field.is_state());
            }
        }
        for (path, columns) in self.tables {
            let items = fields::items(body, path).unwrap_or_default();
            if !items.is_empty() {
                output.text("\n");
                output.table(columns, items.into_iter());
            }
        }
        Ok(Exit::Success)
    }

    /// Gets and shows the object that was named, or that a person chooses.
    pub(crate) fn get<T: Named>(
        &self,
        service: &Service,
        id: Option<&Given<T>>,
        global: &Global,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let client = Client::new(service, global, self.class)?;
        let id = to_read(id, &client)?;
        self.get_from(&client, &id, output)
    }

    /// Gets and shows the object with this id.
    pub(crate) fn get_from(
        &self,
        client: &Client,
        id: &impl Display,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let body = client.get(&format!("{}/{id}", self.path), &[])?;
        self.show(&body, output)
    }

    /// Posts a change to `path`, and shows the object in the answer.
    pub(crate) fn change(
        &self,
        client: &Client,
        path: &str,
        body: Option<&str>,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let body = client.post(path, body)?;
        client.note_if_lost(output);
        self.show(&body, output).map_err(|failure| client.made(failure))
    }

    /// Lists the objects of which a filter has any of several values: a list for each, put together by their ids.
    fn list_any(
        &self,
        client: &Client,
        filters: &[(&'static str, String)],
        (name, values): AnyOf<'_>,
        paging: &Paging,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let (mut items, mut has_more) = (Vec::new(), false);
        for value in values {
            let filters = [filters, &[(name, value.clone())]].concat();
            let mut walk = Walk::new(client, self.path, self.id, filters, paging);
            while let Some(page) = walk.page()? {
                items.extend(page);
            }
            has_more |= walk.has_more();
        }
        let id = |item: &RawValue| fields::text(item.get(), self.id.unwrap_or_default());
        items.sort_by_cached_key(|item| std::cmp::Reverse(id(item)));
        let wanted =
            if paging.all { items.len() } else { usize::try_from(paging.limit).unwrap_or(usize::MAX) };
        has_more |= items.len() > wanted;
        items.truncate(wanted);
        output.begin_pages();
        let mut listing = Listing::new(self.columns, output);
        listing.page(&items)?;
        if items.is_empty() {
            must_be_there(client, filters)?;
        }
        let shown = listing.end()?;
        if has_more && !output.is_json() {
            say_more(shown);
        }
        Ok(Exit::Success)
    }

    /// Lists the objects that match the filters, as many as are wanted.
    pub(crate) fn list(
        &self,
        client: &Client,
        filters: Vec<Filter>,
        paging: &Paging,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let filters = given(filters);
        let mut walk = Walk::new(client, self.path, self.id, filters, paging);
        output.begin_pages();
        let mut listing = Listing::new(self.columns, output);
        while let Some(page) = walk.page()? {
            if !listing.page(&page)? {
                return Ok(Exit::Success);
            }
        }
        if listing.is_empty() {
            must_be_there(client, walk.filters())?;
        }
        let shown = listing.end()?;
        if walk.has_more() && !output.is_json() {
            say_more(shown);
        }
        Ok(Exit::Success)
    }
}

/// A filter of which a list takes one value, and the values of which each will do. Without any the filter is not used.
pub(crate) type AnyOf<'a> = (&'static str, &'a [String]);

/// The options of a command that lists objects.
#[derive(Debug, clap::Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    service: Service,
}

impl ListOptions {
    /// Lists the objects of `resource` that match the filters.
    pub(crate) fn run(
        &self,
        resource: &Resource,
        filters: Vec<Filter>,
        global: &Global,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        resource.list(&self.client(resource, global)?, filters, &self.paging, output)
    }

    /// The client that lists objects of `resource`.
    pub(crate) fn client(&self, resource: &Resource, global: &Global) -> Result<Client, Failure> {
        Client::new(&self.service, global, resource.class)
    }

    /// Lists the objects of `resource` that match the filters, and of which the filter `any` has one of its values.
    pub(crate) fn run_any(
        &self,
        client: &Client,
        resource: &Resource,
        filters: Vec<Filter>,
        any: AnyOf<'_>,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        if any.1.is_empty() {
            return resource.list(client, filters, &self.paging, output);
        }
        resource.list_any(client, &given(filters), any, &self.paging, output)
    }
}

fn say_more(shown: usize) {
    note(format_args!("these are the newest {shown}; --limit N shows more, --all all of them"));
}

/// Fails if a filter names an agent or a mandate that this key does not see: a list of nothing would hide a misspelt name.
pub(crate) fn must_be_there(client: &Client, filters: &[(&'static str, String)]) -> Result<(), Failure> {
    for (noun, id) in filters.iter().filter(|(name, _)| matches!(*name, "agent" | "mandate")) {
        match client.get(&format!("/{noun}s/{id}"), &[]) {
            Err(failure) if failure.exit == Exit::NotFound => {
                return Err(Failure::new(Exit::NotFound, format!("there is no {noun} {id}"))
                    .next(format_args!("mandate {noun} list shows those that this key sees")));
            }
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The filters that have a value.
pub(crate) fn given(filters: Vec<Filter>) -> Vec<(&'static str, String)> {
    filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A list that is printed as a table, a JSON array, or lines of JSON.
pub(crate) struct Listing<'a> {
    output: &'a mut Output,
    table: Tabular,
    /// Objects kept for `--jq` over the whole array.
    kept: Vec<Box<RawValue>>,
    shown: usize,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(columns: &'static [Field], output: &'a mut Output) -> Self {
        let table = Tabular::new(columns, output.look());
        Self { output, table, kept: Vec::new(), shown: 0 }
    }

    /// Prints a page. False if standard output is closed.
    pub(crate) fn page(&mut self, items: &[Box<RawValue>]) -> Result<bool, Failure> {
        match self.output.format() {
            Format::Table if items.is_empty() => {}
            Format::Table => {
                let page = self.table.page(items.iter().map(|item| item.get()));
                self.output.text(&page);
            }
            Format::Ndjson => {
                for item in items {
                    self.output.body(item.get())?;
                }
            }
            Format::Csv => {
                for item in items {
                    self.output.csv_row(item.get())?;
                }
            }
            Format::Json if self.output.has_filter() => self.kept.extend(items.iter().cloned()),
            Format::Json => {
                for item in items {
                    let text = self.output.selected(item.get());
                    self.output.text(if self.shown == 0 { "[" } else { "," });
                    self.output.text(&text);
                    self.shown = self.shown.saturating_add(1);
                }
                return Ok(!self.output.is_over());
            }
        }
        self.shown = self.shown.saturating_add(items.len());
        Ok(!self.output.is_over())
    }

    /// Whether there was no object so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.shown == 0
    }

    /// Ends the list. Returns how many objects there were.
    pub(crate) fn end(self) -> Result<usize, Failure> {
        match self.output.format() {
            Format::Json if self.output.has_filter() => {
                let items: Vec<&str> = self.kept.iter().map(|item| item.get()).collect();
                self.output.body(&format!("[{}]", items.join(",")))?;
            }
            Format::Json => self.output.text(if self.shown == 0 { "[]\n" } else { "]\n" }),
            Format::Table if self.shown == 0 => note("the list is empty"),
            Format::Table | Format::Ndjson | Format::Csv => {}
        }
        self.output.end_pages();
        if let Some(hidden) = self.table.hidden() {
            note(hidden);
        }
        Ok(self.shown)
    }
}
