//! Rows as one array for each column, which `unnest` turns into rows again.
//!
//! A column holds its values as they are sent, so that no row outlives the making of the next.

use std::fmt;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::super::tx::Value;
use super::connection::Parameter;
use crate::error::Fault;

/// The columns of `rows`. `kinds` has a letter for each: `i` for numbers, `t` for text, `b` for bytes.
pub(super) fn columns<R: IntoIterator<Item = Value>>(
    kinds: &str,
    rows: impl Iterator<Item = R>,
) -> Result<Vec<Parameter>, Fault> {
    let mut columns: Vec<Column> = kinds.chars().map(Column::new).collect::<Result<_, _>>()?;
    for row in rows {
        let mut values = row.into_iter();
        for column in &mut columns {
            column.push(values.next().ok_or_else(|| Fault::new("a row of too few columns"))?)?;
        }
        if values.next().is_some() {
            return Err(Fault::new("a row of too many columns"));
        }
    }
    Ok(columns.into_iter().map(Parameter::from).collect())
}

/// A one-dimensional array. `body` has its elements in PostgreSQL's binary format: the length (-1 for NULL),
/// then the bytes.
struct Column {
    element: Type,
    array: Type,
    count: i32,
    has_null: bool,
    body: BytesMut,
}

/// Its values belong to tenants and are not shown.
impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("element", &self.element).finish_non_exhaustive()
    }
}

impl Column {
    fn new(kind: char) -> Result<Self, Fault> {
        let (element, array) = match kind {
            'i' => (Type::INT8, Type::INT8_ARRAY),
            't' => (Type::TEXT, Type::TEXT_ARRAY),
            'b' => (Type::BYTEA, Type::BYTEA_ARRAY),
            _ => return Err(Fault::new("a column of an unknown kind")),
        };
        Ok(Self { element, array, count: 0, has_null: false, body: BytesMut::new() })
    }

    fn push(&mut self, value: Value) -> Result<(), Fault> {
        match (&self.element, value) {
            (&Type::INT8, Value::Integer(value)) => self.append(&value.to_be_bytes())?,
            (&Type::TEXT, Value::Text(value)) => self.append(value.as_bytes())?,
            (&Type::BYTEA, Value::Blob(value)) => self.append(&value)?,
            (_, Value::Null) => {
                self.has_null = true;
                self.body.put_i32(-1);
            }
            (_, value) => return Err(Fault::new(format!("a column of another kind than its {value:?}"))),
        }
        self.count += 1;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let length = i32::try_from(bytes.len()).map_err(|_| Fault::new("a value that is too long"))?;
        self.body.put_i32(length);
        self.body.put_slice(bytes);
        Ok(())
    }
}

impl ToSql for Column {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        if *kind != self.array {
            return Err(format!("an array of {} where {kind} is wanted", self.element).into());
        }
        out.reserve(20 + self.body.len());
        // One dimension, with elements numbered from 1.
        out.put_i32(1);
        out.put_i32(i32::from(self.has_null));
        out.put_u32(self.element.oid());
        out.put_i32(self.count);
        out.put_i32(1);
        out.put_slice(&self.body);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl From<Column> for Parameter {
    fn from(column: Column) -> Self {
        let kind = column.array.clone();
        Self::array(column, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_does_not_fit_is_refused() {
        let rows = |row: Vec<Value>| columns("it", [row].into_iter()).is_ok();
        assert!(rows(vec![1.into(), "a".into()]) && rows(vec![Value::Null, Value::Null]));
        assert!(!rows(vec![1.into()]) && !rows(vec![1.into(), 1.into()]));
        assert!(!rows(vec![1.into(), "a".into(), "b".into()]));
        assert!(columns("x", std::iter::empty::<[Value; 0]>()).is_err());
    }

    #[test]
    fn a_column_is_sent_as_an_array_of_its_values_is() {
        let sent = |value: &dyn ToSql, kind: &Type| {
            let mut out = BytesMut::new();
            value.to_sql_checked(kind, &mut out).unwrap();
            out.freeze()
        };
        let column = |kind: char, values: Vec<Value>| {
            let mut column = Column::new(kind).unwrap();
            for value in values {
                column.push(value).unwrap();
            }
            sent(&column, &column.array)
        };
        let none: Vec<i64> = Vec::new();
        assert_eq!(column('i', Vec::new()), sent(&none, &Type::INT8_ARRAY));
        let numbers = vec![Value::from(i64::MIN), 7.into()];
        assert_eq!(column('i', numbers), sent(&vec![i64::MIN, 7], &Type::INT8_ARRAY));
        let texts = vec![Value::from("a"), Value::Null, "".into(), "ü".into()];
        let plain = vec![Some("a"), None, Some(""), Some("ü")];
        assert_eq!(column('t', texts), sent(&plain, &Type::TEXT_ARRAY));
        let blobs = vec![Value::from([0_u8, 255].to_vec()), Value::Null];
        assert_eq!(column('b', blobs), sent(&vec![Some(vec![0_u8, 255]), None], &Type::BYTEA_ARRAY));
        let mut refused = Column::new('t').unwrap();
        assert!(refused.push(1.into()).is_err(), "a number is no text");
        assert!(refused.to_sql(&Type::INT8_ARRAY, &mut BytesMut::new()).is_err());
    }
}
