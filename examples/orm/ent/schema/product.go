// Package schema is what ent's code is generated from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

// Product is a product of the shop.
type Product struct{ ent.Schema }

// Annotations names the table.
func (Product) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "herd_products"}}
}

// Fields returns the columns.
func (Product) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("name").Unique(), field.Int("price")}
}

// Edges returns what a product is related to.
func (Product) Edges() []ent.Edge { return []ent.Edge{edge.To("reviews", Review.Type)} }

// Review is what somebody wrote about a product.
type Review struct{ ent.Schema }

// Annotations names the table.
func (Review) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "herd_reviews"}}
}

// Fields returns the columns.
func (Review) Fields() []ent.Field { return []ent.Field{field.String("text")} }

// Edges returns what a review is related to.
func (Review) Edges() []ent.Edge {
	return []ent.Edge{edge.From("product", Product.Type).Ref("reviews").Unique()}
}
